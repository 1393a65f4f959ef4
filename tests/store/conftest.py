"""The fixtures of the store's tests live with their databases."""

from support.postgres import server_ends_with_the_run as server_ends_with_the_run
from support.store import backend as backend
from support.store import clock as clock
from support.store import store as store

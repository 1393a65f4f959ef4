"""The fixtures of the store's tests live with their databases."""

from support.store import backend as backend
from support.store import clock as clock
from support.store import store as store

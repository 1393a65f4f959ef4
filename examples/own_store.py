"""A store of your own choice: a file here, `postgresql://user@host/database` for several machines. Any id resumes."""

import sys
import tempfile
from pathlib import Path

import perdure
from perdure.testing.simulator import Simulator

with tempfile.TemporaryDirectory() as folder, Simulator(script=["Noted.", "You said 8080."]) as service:
    place = sys.argv[1] if len(sys.argv) > 1 else Path(folder) / "mine.db"
    with perdure.open_store(place) as store:
        first = perdure.Agent(model="any", base_url=service.base_url, store=store)
        first.chat("The port is 8080.")
        again = perdure.Agent(model="any", base_url=service.base_url, store=store, session_id=first.session_id)
        print(again.chat("Which port was it?"))
        print([hit.snippet for hit in store.search("port 8080")])

"""The small task of `benchmarks.handover`: a toy package with two faults, and what the assistant says and calls.

Files, commands, outputs and errors of the run are real. Only the assistant's side is written down here, as a model
that can drive tools would answer, so that everyone who runs it gets the same conversation.
"""

from __future__ import annotations

from perdure.testing.simulator import Call, Say

FILES = {
    "README.md": """# parcels

Quotes what a parcel costs. Prices are in `rates.csv` (zone, heaviest weight in grams, cents), which finance exports
every quarter. Weights are whole grams, money is whole cents.

    bash check.sh
""",
    "check.sh": r"""# Runs the tests. How long they took is left out, so that two runs can be compared.
set -o pipefail
python -m pytest -q "$@" | sed -E 's/ in [0-9.]+s$//'
""",
    "rates.csv": """zone,up_to_g,cents
1,500,390
1,1000,450
1,2000,590
1,5000,790
1,10000,1090
2,10000,1790
2,5000,1290
2,2000,890
2,1000,690
2,500,590
3,500,890
3,1000,1190
3,2000,1590
3,5000,2290
3,10000,3190
""",
    "parcels/__init__.py": '"""Quotes for parcels."""\n',
    "parcels/rates.py": '''"""The price table: for each zone the heaviest weight a price holds for, and the price."""

import csv
from bisect import bisect_left
from pathlib import Path

RATES = Path(__file__).parent.parent / "rates.csv"


class TooHeavy(ValueError):
    """No price for this weight in this zone."""


def load(path=RATES):
    """Zone -> list of (up_to_g, cents), lightest first."""
    table = {}
    with open(path, newline="") as lines:
        for row in csv.DictReader(lines):
            step = int(row["up_to_g"]), int(row["cents"])
            table.setdefault(int(row["zone"]), []).append(step)
    return table


def price(table, zone, grams):
    """Cents for a parcel; a weight of exactly up_to_g still has that step's price."""
    steps = table[zone]
    at = bisect_left(steps, (grams, 0))
    if at == len(steps):
        raise TooHeavy(f"zone {zone} takes at most {steps[-1][0]} g, not {grams} g")
    return steps[at][1]
''',
    "parcels/quote.py": '''"""What a customer pays: the price of the parcel, the fuel surcharge, the insurance."""

from dataclasses import dataclass

from parcels.rates import load, price

FUEL_SURCHARGE = 0.15
INSURED_UP_TO_CENTS = 50_000


@dataclass(frozen=True)
class Parcel:
    zone: int
    grams: int
    value_cents: int = 0


def quote(parcel, table=None):
    """Cents for one parcel, surcharge and insurance included; half a cent is rounded up."""
    base = price(table or load(), parcel.zone, parcel.grams)
    return int(base * (1 + FUEL_SURCHARGE) + 0.5) + insurance(parcel)


def insurance(parcel):
    """1% of the value, in whole cents and at least 100; nothing for a parcel without a stated value."""
    if parcel.value_cents > INSURED_UP_TO_CENTS:
        raise ValueError(f"insured up to {INSURED_UP_TO_CENTS} cents, not {parcel.value_cents}")
    if not parcel.value_cents:
        return 0
    return max(100, int(parcel.value_cents * 0.01))
''',
    "tests/test_rates.py": """import pytest

from parcels.rates import TooHeavy, load, price


@pytest.mark.parametrize("zone", [1, 2, 3])
def test_every_zone_goes_up_to_ten_kilos(zone):
    assert load()[zone][-1][0] == 10_000


@pytest.mark.parametrize(
    ("zone", "grams", "cents"),
    [(1, 1, 390), (1, 500, 390), (1, 501, 450), (2, 500, 590), (2, 1_500, 890), (2, 10_000, 1_790), (3, 5_000, 2_290)],
)
def test_price_of_a_weight(zone, grams, cents):
    assert price(load(), zone, grams) == cents


@pytest.mark.parametrize("zone", [1, 2, 3])
def test_too_heavy(zone):
    with pytest.raises(TooHeavy, match="at most 10000 g"):
        price(load(), zone, 10_001)
""",
    "tests/test_quote.py": """import pytest

from parcels.quote import Parcel, quote


@pytest.mark.parametrize(
    ("parcel", "cents"),
    [
        (Parcel(1, 900), 518),
        (Parcel(1, 1_500), 679),
        (Parcel(3, 800), 1_369),
        (Parcel(3, 4_000), 2_634),
    ],
)
def test_quote_has_the_fuel_surcharge(parcel, cents):
    assert quote(parcel) == cents


def test_insurance_is_one_percent_and_at_least_a_euro():
    assert quote(Parcel(1, 900, value_cents=5_000)) == 518 + 100
    assert quote(Parcel(1, 900, value_cents=20_000)) == 518 + 200
""",
    "orders.csv": """zone,grams,value_cents
1,400,0
1,2500,11500
2,1999,
2,10000,0
3,750,49900
3,5001,0
""",
}


def run(said: str, command: str) -> Say:
    return Say(said, calls=(Call("terminal", {"command": command}),))


def read(said: str, *paths: str) -> Say:
    return Say(said, calls=tuple(Call("read_file", {"path": p}) for p in paths))


def patch(said: str, path: str, old: str, new: str) -> Say:
    return Say(said, calls=(Call("patch", {"path": path, "old": old, "new": new}),))


def write(said: str, path: str, content: str) -> Say:
    return Say(said, calls=(Call("write_file", {"path": path, "content": content}),))


REQUESTS = (
    "Since finance sent the new rates.csv this morning the tests of this package fail. Find out why and fix it. "
    "Never edit rates.csv, it belongs to finance. Money must stay in whole cents, without floats.",
    "Good, please commit that. Next: the shop says our quotes are sometimes one cent below the invoice, for instance "
    "zone 1, 400 g: we quote 448, the invoice says 449. Which prices are affected, and can you fix it?",
    "Yes, commit it, with the list in the message. Then add a command `python -m parcels orders.csv` that prints one "
    "line per parcel (zone, grams, cents) and the total as the last line. A parcel that is too heavy must not stop it: "
    "print `too heavy` instead of the cents and leave it out of the total.",
)

FIRST = (
    run("I start with what is there and what fails.", "ls -R . | grep -v pyc; git log --oneline; bash check.sh"),
    read("Only zone 2 fails. The table and its loader:", "parcels/rates.py", "rates.csv"),
    run(
        "Zone 2 is listed heaviest first in the new file, and load() says lightest first without sorting. Was the old "
        "file sorted?",
        "git show HEAD~1:rates.csv; git diff HEAD~1 HEAD -- rates.csv",
    ),
    patch(
        "It was, and load() relied on it. The fix is to sort in load() instead of asking finance for an order, because "
        "price() searches by bisection.",
        "parcels/rates.py",
        '            table.setdefault(int(row["zone"]), []).append(step)\n    return table',
        '            table.setdefault(int(row["zone"]), []).append(step)\n'
        "    return {zone: sorted(steps) for zone, steps in table.items()}",
    ),
    run("", "bash check.sh"),
    patch(
        "Green. A test that does not depend on how finance happens to sort:",
        "tests/test_rates.py",
        "import pytest\n",
        'import pytest\n\nHEAVIEST_FIRST = "zone,up_to_g,cents\\n7,1000,200\\n7,500,100\\n"\n',
    ),
    run(
        "",
        "cat >> tests/test_rates.py <<'E'\n\n\ndef test_the_order_of_the_file_does_not_matter(tmp_path):\n"
        '    (tmp_path / "rates.csv").write_text(HEAVIEST_FIRST)\n'
        '    table = load(tmp_path / "rates.csv")\n'
        "    assert [price(table, 7, g) for g in (500, 501)] == [100, 200]\nE\nbash check.sh",
    ),
    Say(
        'Fixed. The new rates.csv lists zone 2 heaviest first; `load()` promised "lightest first" but took the '
        "file's order, and `price()` searches by bisection, which needs sorted steps. `load()` now sorts, and a test "
        "covers a table in the wrong order. rates.csv is untouched. Nothing is committed yet."
    ),
)

SECOND = (
    run(
        "Committing first.",
        "git add -A && git commit -q -m 'Sort the rates: finance may list them in any order' "
        "&& git log --oneline && git status --short",
    ),
    read("Now the cent.", "parcels/quote.py", "tests/test_quote.py"),
    run(
        "`int(base * 1.15 + 0.5)` works in binary floats: 390 * 1.15 is a little below 448.5. All prices at once, "
        "against exact arithmetic:",
        "python - <<'E'\nfrom decimal import ROUND_HALF_UP, Decimal\nfrom parcels.rates import load\n"
        "print('390 * 1.15 =', repr(390 * 1.15))\nwrong = 0\n"
        "for zone, steps in load().items():\n    for up_to_g, base in steps:\n"
        "        ours = int(base * (1 + 0.15) + 0.5)\n"
        "        exact = int((base * Decimal('1.15')).quantize(Decimal(1), ROUND_HALF_UP))\n"
        "        wrong += ours != exact\n"
        "        print(zone, up_to_g, base, ours, exact, '<-- wrong' if ours != exact else '')\n"
        "print(wrong, 'of 15 are wrong')\nE",
    ),
    patch(
        "Eight of fifteen, each one cent too low. I use integers instead of Decimal, because whole cents and a whole "
        "percentage need nothing else.",
        "parcels/quote.py",
        "FUEL_SURCHARGE = 0.15",
        "FUEL_SURCHARGE_PERCENT = 15",
    ),
    patch(
        "",
        "parcels/quote.py",
        "    return int(base * (1 + FUEL_SURCHARGE) + 0.5) + insurance(parcel)",
        "    return (base * (100 + FUEL_SURCHARGE_PERCENT) + 50) // 100 + insurance(parcel)",
    ),
    patch(
        "The insurance has the same fault in waiting:",
        "parcels/quote.py",
        "    return max(100, int(parcel.value_cents * 0.01))",
        "    return max(100, parcel.value_cents // 100)",
    ),
    patch(
        "",
        "tests/test_quote.py",
        "        (Parcel(1, 900), 518),",
        "        (Parcel(1, 400), 449),\n        (Parcel(2, 800), 794),\n        (Parcel(3, 10_000), 3_669),\n"
        "        (Parcel(1, 900), 518),",
    ),
    run("", "bash check.sh; git diff"),
    run(
        "Does anybody else use the old name?",
        "grep -rn FUEL_SURCHARGE . --include='*.py' --include='*.md'",
    ),
    Say(
        "Fixed, in `parcels/quote.py`: the surcharge was computed in floats, and 390 * 1.15 comes out below 448.5. "
        "It is integer arithmetic now (`FUEL_SURCHARGE_PERCENT = 15`, rounded half up), and so is the insurance. "
        "Affected were 8 of 15 prices, each quoted one cent too low: zone 1 up to 500 g and 5000 g; zone 2 up to "
        "1000 g, 2000 g and 5000 g; zone 3 up to 500 g, 2000 g and 10000 g. Three of them are tests now. "
        "Shall I commit it?"
    ),
)

THIRD = (
    run(
        "",
        "git add -A && git commit -q -F - <<'E'\nCompute the surcharge in whole cents\n\n"
        "Quoted one cent too low until now: zone 1 up to 500 and 5000 g;\nzone 2 up to 1000, 2000 and 5000 g; "
        "zone 3 up to 500, 2000 and 10000 g.\nE\ngit log --oneline && git status --short",
    ),
    read("Now the command. What it is given, and what it can call:", "orders.csv", "README.md", "parcels/quote.py"),
    write(
        "",
        "parcels/__main__.py",
        '''"""`python -m parcels orders.csv`: one line per parcel, the total last."""

import csv
import sys

from parcels.quote import Parcel, quote
from parcels.rates import TooHeavy, load


def lines(rows):
    """The lines for the rows of an order file."""
    table, total = load(), 0
    for row in rows:
        parcel = Parcel(**{key: int(value) for key, value in row.items()})
        try:
            cents = quote(parcel, table)
        except TooHeavy:
            yield f"{parcel.zone} {parcel.grams} too heavy"
            continue
        total += cents
        yield f"{parcel.zone} {parcel.grams} {cents}"
    yield f"total {total}"


if __name__ == "__main__":
    with open(sys.argv[1], newline="") as orders:
        print(*lines(csv.DictReader(orders)), sep="\\n")
''',
    ),
    run("", "python -m parcels orders.csv"),
    patch(
        "A parcel may have no stated value: the field is empty then.",
        "parcels/__main__.py",
        "int(value) for key",
        "int(value or 0) for key",
    ),
    run("", "python -m parcels orders.csv"),
    run(
        "Now a parcel that is too heavy, and one whose value is above the insured limit:",
        "printf 'zone,grams,value_cents\\n1,10001,0\\n2,500,0\\n' > /tmp/parcels-heavy.csv\n"
        "printf 'zone,grams,value_cents\\n1,400,60000\\n2,500,0\\n' > /tmp/parcels-dear.csv\n"
        "python -m parcels /tmp/parcels-heavy.csv; python -m parcels /tmp/parcels-dear.csv",
    ),
    write(
        "Too heavy is right. A value above the limit stops the command with a ValueError; the request says nothing of "
        "that, so I leave it and ask at the end. First the tests.",
        "tests/test_main.py",
        """import csv

from parcels.__main__ import lines

HEADER = "zone,grams,value_cents"


def printed(*rows):
    return list(lines(csv.DictReader([HEADER, *rows])))


def test_a_line_per_parcel_and_the_total_last():
    assert printed("1,400,0", "2,500,") == ["1 400 449", "2 500 679", "total 1128"]


def test_too_heavy_is_told_and_left_out_of_the_total():
    assert printed("1,10001,0", "2,500,0") == ["1 10001 too heavy", "2 500 679", "total 679"]


def test_no_parcels_come_to_nothing():
    assert printed() == ["total 0"]
""",
    ),
    run("", "bash check.sh"),
    patch(
        "Green. The README should name the command.",
        "README.md",
        "    bash check.sh\n",
        "    python -m parcels orders.csv    # one line per parcel, the total last\n    bash check.sh\n",
    ),
    run("", "git add -A && git commit -q -m 'Quote a file of orders' && git show --stat && git status --short"),
    Say(
        "Done and committed: `python -m parcels orders.csv` prints a line per parcel and the total; a parcel that is "
        "too heavy is told and left out. One question: a value above the insured limit of 50000 cents still stops it "
        "with a ValueError. Shall it print `not insurable` instead?"
    ),
)

PLAN = (FIRST, SECOND, THIRD)

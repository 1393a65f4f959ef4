"""The repository that the demo works on: a small order service with a bug, tests, data and a long log."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

SLOW_ORDER, SLOW_SECONDS = "48213", "31.7"
WAREHOUSE = "WH-7731"

_PARSER = '''"""Reads orders from CSV exports."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Order:
    number: str
    customer: str
    amount: Decimal
    day: str


def parse_orders(text):
    """Return the orders of an export, its first line being the header."""
    orders = []
    for line in text.splitlines()[1:]:
        number, customer, amount, day = line.split(",")
        orders.append(Order(number, customer, Decimal(amount), day))
    return orders
'''

FIXED_LOOP = """    rows = csv.reader(io.StringIO(text))
    next(rows, None)
    return [Order(number, customer, Decimal(amount), day) for number, customer, amount, day in rows]
"""

BROKEN_LOOP = _PARSER.partition('first line being the header."""\n')[2]

_PRICING = '''"""Prices, taxes and shipping of an order."""

from decimal import Decimal

VAT = Decimal("0.19")
SHIPPING = Decimal("4.90")


def total(amount):
    """Return the amount with shipping and value-added tax."""
    return ((amount + SHIPPING) * (1 + VAT)).quantize(Decimal("0.01"))
'''

DISCOUNTED = '''DISCOUNT, DISCOUNT_FROM = Decimal("0.075"), Decimal("400")


def total(amount):
    """Return the amount with discount, shipping and value-added tax, rounded half up."""
    if amount > DISCOUNT_FROM:
        amount -= amount * DISCOUNT
    return ((amount + SHIPPING) * (1 + VAT)).quantize(Decimal("0.01"), ROUND_HALF_UP)
'''

PLAIN_TOTAL = "\n" + _PRICING.partition('4.90")\n\n')[2]

_TESTS = """import unittest

from orders.parser import parse_orders
from orders.pricing import total

EXPORT = 'number,customer,amount,day\\n1001,"Meyer, Anna",120.00,2026-03-02\\n1002,Okafor,80.50,2026-03-02\\n'


class Parser(unittest.TestCase):
    def test_a_comma_in_a_name(self):
        self.assertEqual([o.customer for o in parse_orders(EXPORT)], ["Meyer, Anna", "Okafor"])

    def test_an_empty_export(self):
        self.assertEqual(parse_orders("number,customer,amount,day"), [])


class Pricing(unittest.TestCase):
    def test_shipping_and_tax(self):
        self.assertEqual(str(total(100)), "124.83")
"""

DISCOUNT_TEST = """import unittest
from decimal import Decimal

from orders.pricing import total


class Discount(unittest.TestCase):
    def test_the_border_has_none(self):
        self.assertEqual(str(total(Decimal("400"))), "481.83")

    def test_above_the_border(self):
        self.assertEqual(str(total(Decimal("500"))), "556.21")
"""

_VERBS = (
    *("check", "reserve", "release", "count", "merge", "split", "price", "archive", "restore", "report"),
    *("notify", "cancel", "confirm", "sort", "assign", "move", "weigh", "label", "track", "close"),
)
_MODULES = ("stock", "shipping", "invoices", "returns", "suppliers")


def build_project(folder: Path) -> None:
    """Write the repository to an empty folder, and commit it where git is installed."""
    chance = random.Random(7)
    files = {
        "orders/__init__.py": "",
        "orders/parser.py": _PARSER,
        "orders/pricing.py": _PRICING,
        "tests/__init__.py": "",
        "tests/test_orders.py": _TESTS,
        "migrations/0001_orders.sql": "create table orders (number text primary key, amount numeric);\n",
        "exports/2024.csv": _export(chance, 400, "2024"),
        "data/march.csv": _export(chance, 260, "2026"),
        "logs/server.log": _log(chance),
        "README.md": f"# Orders\n\nReads exports, prices orders. Returns go to warehouse {WAREHOUSE}, gate 4.\n",
        **{f"orders/{name}.py": _module(name) for name in _MODULES},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if has_git():
        for command in (
            ["init", "-q", "-b", "main"],
            ["config", "user.name", "Demo"],
            ["config", "user.email", "demo@localhost"],
            ["add", "-A"],
            ["commit", "-q", "-m", "Orders: the first version"],
        ):
            subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)


def has_git() -> bool:
    return shutil.which("git") is not None


def _export(chance: random.Random, rows: int, year: str) -> str:
    names = ("Okafor", '"Meyer, Anna"', "Tanaka", '"Silva, J."', "Novak", "Haddad", "Larsen", '"O’Neill, Sean"')
    lines = (
        f"{chance.randint(40_000, 59_999)},{chance.choice(names)},{chance.randint(900, 90_000) / 100:.2f},"
        f"{year}-03-{chance.randint(1, 31):02d}"
        for _ in range(rows)
    )
    return "number,customer,amount,day\n" + "\n".join(lines) + "\n"


def _log(chance: random.Random) -> str:
    lines = [
        f"2026-03-{1 + i // 200:02d} {i % 24:02d}:{i % 60:02d}:{i * 7 % 60:02d} INFO request path=/orders/"
        f"{chance.randint(40_000, 59_999)} status=200 took={chance.randint(4, 900) / 1000:.3f}s"
        for i in range(5_000)
    ]
    slow = f"ERROR payment gateway timeout order={SLOW_ORDER} attempts=3 took={SLOW_SECONDS}s status=504"
    lines[3_107] = f"2026-03-16 11:47:29 {slow}"
    return "\n".join(lines) + "\n"


def _module(name: str) -> str:
    """Return a module of plausible length, for the agent to read."""
    functions = "\n\n".join(
        f"def {name}_{verb}(order, *, limit={10 + n}):\n"
        f'    """Apply the {verb} rule of {name} to an order; at most `limit` times."""\n'
        f"    steps = [order.amount * step for step in range(limit)]\n"
        f"    accepted = [step for step in steps if step > {n}]\n"
        f"    if not accepted:\n"
        f'        raise ValueError(f"{name}: order {{order.number}} has no step above {n}")\n'
        f"    return max(accepted) - min(accepted) + {n}\n"
        for n, verb in enumerate(_VERBS)
    )
    return f'"""Rules of {name}."""\n\n\n{functions}'

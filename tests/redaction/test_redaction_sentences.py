"""Random values in a sentence that speaks of a credential, in many languages and forms."""

from __future__ import annotations

import string
import time
from itertools import pairwise
from random import Random

import pytest

from perdure.redaction import redact

# {value} is drawn in each of these alphabets and lengths, as services do.
FORMATS = {
    "mixed 20": (string.ascii_letters + string.digits, 20),
    "mixed 40": (string.ascii_letters + string.digits, 40),
    "small 32": (string.ascii_lowercase + string.digits, 32),
    "capitals 24": (string.ascii_uppercase + string.digits, 24),
    "hexadecimal 32": ("0123456789abcdef", 32),
    "hexadecimal 64": ("0123456789abcdef", 64),
}
SENTENCES = """
I called the endpoint with the key {value} and got a 401.
Use {value} as the token, the old one is dead.
key: {value}
log in with the token {value} please
you can authenticate using the key {value}
curl needs the header set to my key, {value}, otherwise it fails
I pasted {value} where the token goes
their support gave me this key {value}
My key for the sandbox: {value}
the new key (valid until Friday) is {value}
Could you rotate the key {value}? I leaked it.
The key I got from the dashboard is {value}
revoke {value}, that token was in the log
the server rejects the key "{value}"
Set the key to {value} in the settings
{value} is the key for production
{value} - that's the secret
the customer's key, {value}, was deactivated
put {value} into the key field
Ich habe es mit dem Schlüssel {value} versucht.
Nimm {value} als Token
das Passwort lautet {value}
j'utilise la clé {value} pour l'API
utilise {value} comme jeton
con la clave {value} responde 401
la contraseña es {value}
com a chave {value} funciona
usa la chiave {value} per favore
gebruik {value} als wachtwoord
hasło: {value}
с ключом {value} работает
используй {value} как токен
用密钥 {value} 登录
用 {value} 作为令牌
キーは {value} です
トークン {value} を使ってください
키는 {value} 입니다
şifre: {value}
nyckeln är {value}
""".strip().splitlines()


def draw(rng: Random, alphabet: str, count: int) -> str:
    """Draw a value with letters and digits in turns, as nearly every drawn one has."""
    while True:
        value = "".join(rng.choices(alphabet, k=count))
        if sum(a.isdigit() != b.isdigit() for a, b in pairwise(value)) >= 4:
            return value


@pytest.mark.spec("E9")
@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_random_value_beside_the_word_for_a_credential_is_taken_out(sentence: str) -> None:
    rng = Random(sentence)
    for alphabet, count in FORMATS.values():
        value = draw(rng, alphabet, count)
        text = sentence.format(value=value)
        assert redact(text) == text.replace(value, "[REDACTED]"), text


@pytest.mark.parametrize(
    "text",
    [
        "the key {value}.png is missing",
        "the key is https://example.com/{value}",
        "the key is /srv/data/{value}",
        "next page token: {value}",
        "the sync token is {value}",
        "the token contract is 0x{address}",
        "pip install x --hash=sha256:{hash}  # token",
    ],
)
def test_a_file_an_address_and_a_place_in_a_list_stay(text: str) -> None:
    rng = Random(text)
    value = draw(rng, string.ascii_letters + string.digits, 32)
    filled = text.format(value=value, address=draw(rng, "0123456789abcdef", 40), hash=draw(rng, "0123456789abcdef", 64))
    assert redact(filled) == filled


@pytest.mark.parametrize(
    "unit",
    [
        "key " + "a" * 100 + " 9f8a7b6c5d4e3f2a1b0c ",
        "キー" * 30 + "a1b2c3d4e5f6a7b8c9d0",
        "token é" * 15 + "a1B2c3D4e5F6g7H8i9J0 ",
        "a1b2c3d4e5f6a7b8c9-" * 3 + " as the " + "é" * 40 + " key ",
        "key (" + "word " * 20,
    ],
)
def test_the_search_takes_linear_time(unit: str) -> None:
    start = time.process_time()
    redact(unit * 500)
    assert time.process_time() - start < 5

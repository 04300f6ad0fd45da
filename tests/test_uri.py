"""Connection strings: none of a password is ever shown, and nonsense is refused."""

import pytest

from spatialnosql.errors import UsageError
from spatialnosql.uri import URI_VARIABLE, redact, resolve_uri

PASSWORDS = ["secret", "se@cret", "sec:ret", "sec/ret", "sec%2Fret", "s@e:c/r%e?t", "my secret", "@", "a@b@c"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv", "mongo", "http"])
def test_no_part_of_user_and_password_is_shown(scheme: str, password: str) -> None:
    uri = f"{scheme}://ann:{password}@db.example:27017/shop?retryWrites=true"
    assert redact(uri) == f"{scheme}://***@db.example:27017/shop?retryWrites=true"
    assert redact(f"cannot reach {uri} now") == f"cannot reach {redact(uri)} now"


@pytest.mark.parametrize(
    "text",
    [
        "mongodb://127.0.0.1:27017/",
        "mongodb://a.example,b.example/?replicaSet=rs0",
        "nothing to hide: a@b.example",
        "",
    ],
)
def test_what_has_no_credentials_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "option", ["authMechanismProperties", "tlsCertificateKeyFilePassword", "proxyPassword", "PROXYPASSWORD"]
)
def test_secrets_among_the_options_are_hidden(option: str) -> None:
    text = redact(f"mongodb://db.example/?tls=true&{option}=AWS_SESSION_TOKEN:abc&w=1")
    assert text == f"mongodb://db.example/?tls=true&{option}=***&w=1"


def test_several_uris_in_one_text() -> None:
    text = redact("mongodb://a:1@h1/\nmongodb://b:2@h2/ and mongodb://c:3@h3/")
    assert not any(secret in text for secret in ("a:1", "b:2", "c:3"))
    assert text.splitlines()[0] == "mongodb://***@h1/"


def test_the_given_uri_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URI_VARIABLE, "mongodb://env.example/")
    assert resolve_uri("mongodb+srv://given.example/") == "mongodb+srv://given.example/"
    assert resolve_uri() == "mongodb://env.example/"


@pytest.mark.parametrize("value", [None, ""])
def test_without_any_there_is_none(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(URI_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(URI_VARIABLE, value)
    assert resolve_uri() is None


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("head", ["mongo://ann:", "ann:", "http://ann:"])
def test_nonsense_is_refused_without_showing_a_password(head: str, password: str) -> None:
    with pytest.raises(
        UsageError, match=r"not a MongoDB URI: '.*\*\*\*@db.example'; it must start"
    ) as caught:
        resolve_uri(f"{head}{password}@db.example")
    assert f"{password}@db" not in str(caught.value).replace("***@db", "")
    assert "ann" not in str(caught.value)


@pytest.mark.parametrize("password", ["hu?sh", "hu#sh", "hu?s@h", "?"])
def test_a_password_that_looks_like_options_is_refused_before_anybody_quotes_it(password: str) -> None:
    with pytest.raises(
        UsageError, match=r"mongodb://\*\*\*@db.example/\?w=1: user name, password .*-encoded"
    ):
        resolve_uri(f"mongodb://ann:{password}@db.example/?w=1")


@pytest.mark.parametrize(
    "uri", ["mongodb://db.example/?appName=me@here", "mongodb://a:b%3F@db.example/?w=1#"]
)
def test_proper_options_are_no_password(uri: str) -> None:
    assert resolve_uri(uri) == uri

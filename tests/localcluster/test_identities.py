"""Token and kubeconfig files of a local cluster."""

from pathlib import Path

import pytest

from muster.localcluster.apiserver.access.tokens import BadTokenFile, read_tokens
from muster.localcluster.identities import KUBELETS, Identities
from muster.localcluster.permissions import SERVICES


def test_the_api_server_reads_the_token_file(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "access")
    identities.write(server="http://127.0.0.1:1", services_server="http://127.0.0.1:2")
    users = read_tokens(identities.token_file)

    assert users[identities.tokens["binding"]].name == "system:serviceaccount:muster-system:muster-binding"
    assert "system:serviceaccounts:muster-system" in users[identities.tokens["binding"]].groups
    assert "system:nodes" in users[identities.tokens[KUBELETS]].groups
    assert [user.name for user in users.values() if user.unbounded] == ["muster-local"]
    assert "127.0.0.1:2" in identities.kubeconfig("binding").read_text()
    assert "127.0.0.1:1" in identities.kubeconfig(KUBELETS).read_text()


def test_the_files_are_private(tmp_path: Path) -> None:
    identities = Identities(tmp_path / "access")
    for _ in range(2):  # also when they are written again
        identities.write(server="http://127.0.0.1:1", services_server="http://127.0.0.1:1")
        files = [identities.token_file, *(identities.kubeconfig(name) for name in (*SERVICES, KUBELETS))]
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("secret-one,ann\n", "line 1 of .* has 2 fields"),
        ('secret-one,ann,1,"a,b",more\n', "line 1 of .* has 5 fields"),
        ("secret-one,ann,1\n\nsecret-one,bob,2\n", "line 3 of .* duplicate token, for 'bob'"),
        (",ann,1\n", "line 1 of .*"),
        ("secret-one,,1\n", "line 1 of .*"),
    ],
    ids=["few-fields", "many-fields", "twice", "no-token", "no-user"],
)
def test_an_invalid_token_file_is_rejected_without_showing_a_token(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text(text)
    with pytest.raises(BadTokenFile, match=message) as caught:
        read_tokens(file)
    assert "secret-one" not in str(caught.value)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTokenFile, match=r"none\.csv cannot be read"):
        read_tokens(tmp_path / "none.csv")


def test_the_token_file_has_the_format_of_kube_apiserver(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t1,ann,7,"writers, readers"\nt2,bob,8\n')
    users = read_tokens(file)
    assert (users["t1"].name, users["t1"].uid) == ("ann", "7")
    assert users["t1"].groups == ("writers", "readers", "system:authenticated")
    assert users["t2"].groups == ("system:authenticated",)

"""What an operator and a site's engineer get without a network: keys, commands, units, the proxy's rule, projects."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import called, one_line
from headway.deploy import commands, faults, guard, processes, project, units
from headway.deploy.commands import Address, Command
from headway.deploy.faults import Kill
from headway.deploy.keys import ServerFiles
from headway.errors import MachineError, UserError

ROOT = Path(__file__).resolve().parents[1]
WARD = ROOT / "examples" / "ward"
FILES = ServerFiles(Path("/keys"))


# ── projects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_example_is_what_init_writes(tmp_path: Path) -> None:
    made = project.init(tmp_path / "ward")
    shipped = {path.relative_to(WARD) for path in WARD.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.relative_to(tmp_path / "ward") for path in made} == shipped
    for path in made:
        assert path.read_bytes() == (WARD / path.relative_to(tmp_path / "ward")).read_bytes(), path


def test_an_engineer_writes_at_most_fifteen_lines() -> None:
    lines = [line for line in (WARD / "app.py").read_text().splitlines() if line.strip() and line.strip()[0] != "#"]
    assert len(lines) <= 15


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not empty" in one_line(called(tmp_path, "deploy init ."))


def test_settings_of_a_federation(tmp_path: Path) -> None:
    project.init(tmp_path / "new")
    found = project.read_federation(tmp_path / "new")
    assert (found.sites, found.deadline, found.quorum, found.rehearsal) == (3, 1800.0, 2, "rehearsal")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("site = 3", "has the setting 'site'; allowed: sites, deadline"),
        ('sites = "3"', "sites in federation.toml is '3'; it must be a whole number"),
        ('deadline = "soon"', "it must be a number with s, m, h or d, such as 30m"),
        ("rehearsal = 1", "it must be a table: [rehearsal]"),
        ("sites = ", "is not TOML"),
    ],
)
def test_wrong_settings_are_refused(line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app.py").touch()
    Path("federation.toml").write_text(line)
    with pytest.raises(UserError) as refused:
        project.read_federation(Path())
    assert said in str(refused.value)


def test_more_sites_than_there_is_data_of_are_refused() -> None:
    assert list(project.rehearsal_data(WARD / "rehearsal", 2)) == ["site-1", "site-2"]
    with pytest.raises(UserError, match="has data of 5 sites, but 6 are to be played"):
        project.rehearsal_data(WARD / "rehearsal", 6)


@settings(deadline=None)
@given(st.integers(1, 10**6), st.sampled_from("smhd"))
def test_durations(count: int, unit: str) -> None:
    assert project.duration("--deadline", f"{count}{unit}") == count * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit]


# ── what may be killed ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_killed() -> None:
    assert faults.kills("site:2@3,server@1, link@4", 3, 5) == (Kill(1, "server"), Kill(3, "site", 2), Kill(4, "link"))
    assert faults.kills("", 3, 5) == ()


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 9))
def test_a_kill_is_read_as_it_is_written(site: int, round: int) -> None:
    for kill in (Kill(round, "site", site), Kill(round, "server"), Kill(round, "link")):
        assert faults.kills(str(kill), 9, 9) == (kill,)


@pytest.mark.parametrize("text", ["site@1", "site:4@1", "site:0@1", "link@6", "server@0", "node@1", "link@1,server@1"])
def test_what_cannot_be_killed_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--kill"):
        faults.kills(text, 3, 5)


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Flower's programs, as files that are never started."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("headway", "flwr", "flower-superlink", "flower-supernode", "flower-superexec"):
        (folder / name).write_text("#!/bin/sh\nexit 9\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def every_command(state: Path) -> list[Command]:
    site = commands.Site(
        "a", Path("/keys/a"), Path("/ca.crt"), Address("fl.example.org", 443), state, Path("/srv/ward")
    )
    return [commands.superlink(FILES, Address("127.0.0.1", 9092), state), commands.supernode(site)]


def test_nothing_phones_home_and_nothing_is_installed(programs: Path, tmp_path: Path) -> None:
    for command in every_command(tmp_path):
        assert command.environment["FLWR_TELEMETRY_ENABLED"] == "0"
        assert command.environment["FLWR_DISABLE_UPDATE_CHECK"] == "1"
        assert command.environment["FLWR_HOME"] == str(tmp_path / "flower")
        assert not [word for word in command.arguments if word.startswith("--allow")]
        assert "--insecure" not in command.arguments
    assert "--disable-runtime-dependency-installation" in every_command(tmp_path)[0].arguments
    assert "--enable-supernode-auth" in every_command(tmp_path)[0].arguments


def test_a_command_is_printed_as_a_shell_takes_it(programs: Path, tmp_path: Path) -> None:
    for command in every_command(tmp_path):
        words = shlex.split(str(command))
        count = len(command.environment)
        assert dict(word.split("=", 1) for word in words[:count]) == command.environment
        assert tuple(words[count:]) == command.arguments


def test_what_a_site_tells_its_app_is_toml(programs: Path, tmp_path: Path) -> None:
    words = every_command(tmp_path)[1].arguments
    told = words[words.index("--node-config") + 1]
    assert tomllib.loads("\n".join(shlex.split(told, posix=False))) == {
        "name": "a",
        "state": str(tmp_path / "headway"),
        "data": "/srv/ward",
    }
    with pytest.raises(UserError, match="cannot hold"):
        commands.supernode(commands.Site("a", Path("k"), Path("c"), Address("h", 1), tmp_path, Path('/srv/a"b')))


@pytest.mark.parametrize(("text", "host", "port"), [("a.b:1", "a.b", 1), ("[::1]:443", "::1", 443)])
def test_addresses(text: str, host: str, port: int) -> None:
    found = Address.read("--superlink", text)
    assert found == Address(host, port)
    assert str(found) == text


@pytest.mark.parametrize("text", ["host", "host:", ":1", "host:0", "host:65536", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="it must be HOST:PORT"):
        Address.read("--superlink", text)


def test_serve_and_join_print_what_they_would_become(programs: Path, tmp_path: Path) -> None:
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / name).touch()
    served = called(tmp_path, "deploy serve --keys . --state state --print")
    assert served.returncode == 0, served.stderr
    assert "--host 127.0.0.1 --port 9092" in served.stdout
    (tmp_path / "a").touch(mode=0o600)
    join = "deploy join a --key a --superlink fl.example.org:443 --state state"
    joined = called(tmp_path, f"{join} --print")
    assert joined.returncode == 0, joined.stderr
    assert "--superlink fl.example.org:443" in joined.stdout
    assert not (tmp_path / "state").exists()
    unit = called(tmp_path, f"{join} --unit").stdout
    for line in ("Restart=always", "RestartSec=65", "KillMode=control-group", "UMask=0077"):
        assert line in unit.splitlines()
    before = next(line for line in unit.splitlines() if line.startswith("ExecStartPre="))
    assert before == f"ExecStartPre=+/bin/mkdir -p -m 0700 {tmp_path}/state"
    (tmp_path / "a").chmod(0o644)
    assert "can be read by others" in one_line(called(tmp_path, f"{join} --print"))


def test_without_flower_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ca.crt", "server.crt", "server.key"):
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    said = one_line(called(tmp_path, "deploy serve --keys . --print", PATH=str(tmp_path)))
    assert said == "the program flower-superlink is not installed; pip install 'headway[deploy]'"


# ── units and the proxy ──────────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_a_unit_has_every_word_as_it_is(word: str) -> None:
    unit = units.systemd(Command(("/bin/x", word), {"NAME": word}), "test", [Path("/state")])
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    quoted = line.removeprefix("ExecStart=/bin/x ")
    read = quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\") if quoted.startswith('"') else quoted
    assert read.replace("%%", "%").replace("$$", "$") == word


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(programs: Path, tmp_path: Path) -> None:
    unit = tmp_path / "headway-site.service"
    unit.write_text(units.systemd(every_command(tmp_path)[1], "a site", [tmp_path, tmp_path / "my runs"]))
    ended = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "headway-site" not in ended.stderr, ended.stderr


def test_the_proxy_forwards_one_path_alone() -> None:
    rule = units.proxy(FILES, Address("0.0.0.0", 443), "fl.example.org", Address("127.0.0.1", 9092))
    assert rule.count("proxy_pass ") == 1
    assert rule.index("location /v1/fleet/ {") < rule.index("proxy_pass https://127.0.0.1:9092;")
    assert "return 404;" in rule[rule.index("location / {") :]
    assert "proxy_ssl_verify on;" in rule


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which checks the certificates, is not here")
class TestKeys:
    """Certificates are checked by OpenSSL, another program than the one that made them."""

    @pytest.fixture(autouse=True)
    def _cryptography(self) -> None:
        pytest.importorskip("cryptography", reason="cryptography comes with headway[deploy]")

    def test_the_authority_stays_and_the_certificate_is_renewed(self, tmp_path: Path) -> None:
        from headway.deploy.keys import make_server_files

        made = make_server_files(tmp_path / "keys", ["fl.example.org", "127.0.0.1"])
        first = [path.read_bytes() for path in (made.authority, made.certificate)]
        make_server_files(tmp_path / "keys", ["fl.example.org"])
        assert made.authority.read_bytes() == first[0]
        assert made.certificate.read_bytes() != first[1]
        for name, good in (("fl.example.org", True), ("other.example.org", False)):
            checked = ["openssl", "verify", "-CAfile", str(made.authority), "-verify_hostname", name]
            ended = subprocess.run([*checked, str(made.certificate)], capture_output=True, check=False)
            assert (ended.returncode == 0) is good

    def test_secrets_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        from headway.deploy.keys import make_server_files, make_site_keys

        make_server_files(tmp_path / "keys", ["localhost"])
        secret, public = make_site_keys(tmp_path / "site", "a")
        for path in (tmp_path / "keys" / "ca.key", tmp_path / "keys" / "server.key", secret):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for folder in (tmp_path / "keys", tmp_path / "site"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert b"PRIVATE" not in public.read_bytes()
        assert public.read_text().startswith("ecdsa-sha2-nistp384 ")

    def test_nothing_overwrites_a_secret(self, tmp_path: Path) -> None:
        assert called(tmp_path, "deploy keys --site a").returncode == 0
        assert "is there already" in one_line(called(tmp_path, "deploy keys --site a"))

    def test_a_certificate_of_another_folder_is_not_taken_over(self, tmp_path: Path) -> None:
        (tmp_path / "keys").mkdir(mode=0o700)
        (tmp_path / "keys" / "ca.crt").touch()
        assert "has one of ca.crt and ca.key alone" in one_line(called(tmp_path, "deploy keys --host a.example.org"))

    @pytest.mark.parametrize("host", ["a b", "-a.example.org", "http://x", ""])
    def test_what_is_no_host_is_refused(self, host: str, tmp_path: Path) -> None:
        assert "it must be a host name" in one_line(called(tmp_path, f"deploy keys --host {shlex.quote(host)}"))

    @pytest.mark.parametrize("site", ["A", "../a", "a/b", ".a", "a" * 65])
    def test_what_is_no_name_of_a_site_is_refused(self, site: str, tmp_path: Path) -> None:
        assert "the name of a site is" in one_line(called(tmp_path, f"deploy keys --site {site}"))

    def test_a_certificate_is_read_by_python_too(self, tmp_path: Path) -> None:
        from headway.deploy.keys import make_server_files

        made = make_server_files(tmp_path / "keys", ["localhost"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────

HAS_PROC = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
FAMILY = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '600'], start_new_session=True); time.sleep(600)"


def family(stage: processes.Stage, name: str) -> processes.Child:
    """A process that starts another one in a session of its own."""
    child = stage.start(name, Command((sys.executable, "-c", FAMILY)))
    mark = f"{stage.mark}{name}/"
    assert processes.wait_until(lambda: len(list(guard.marked(mark))) == 2, 30, [child])
    return child


@HAS_PROC
@pytest.mark.parametrize("fault", [None, KeyboardInterrupt, MachineError])
def test_a_stage_leaves_nothing(fault: type[BaseException] | None) -> None:
    stage = processes.Stage()
    try:
        with stage:
            family(stage, "one")
            family(stage, "two")
            assert len(stage.left()) == 4
            if fault is not None:
                raise fault
    except (KeyboardInterrupt, MachineError):
        pass
    assert stage.left() == []
    assert not stage.folder.exists()


@HAS_PROC
def test_a_part_is_killed_with_its_descendants_alone() -> None:
    with processes.Stage() as stage:
        family(stage, "one")
        other = family(stage, "one-more")
        stage.kill("one")
        assert list(guard.marked(f"{stage.mark}one/")) == []
        assert len(stage.left()) == 2
        assert other.process.poll() is None


ALONE = """
import sys, time
from headway.deploy import processes
from headway.deploy.commands import Command
with processes.Stage() as stage:
    stage.start("one", Command((sys.executable, "-c", sys.argv[1])))
    while len(stage.left()) < 2:
        time.sleep(0.05)
    print(stage.token, stage.folder, flush=True)
    time.sleep(600)
"""


@HAS_PROC
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_guard_ends_what_a_killed_rehearsal_leaves(number: int) -> None:
    alone = subprocess.Popen([sys.executable, "-c", ALONE, FAMILY], stdout=subprocess.PIPE, text=True, env=os.environ)
    assert alone.stdout is not None
    token, folder = alone.stdout.readline().split()
    alone.send_signal(number)
    alone.wait()
    mark = f"{processes.MARK}={token}/"
    assert processes.wait_until(lambda: not list(guard.marked(mark)) and not Path(folder).exists(), 30)
    alone.stdout.close()


UNMARKED = "import os, sys, time; os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)'], {})"


@HAS_PROC
def test_a_part_that_loses_its_mark_is_found_by_its_log() -> None:
    """As nginx does, which writes its title over its environment."""
    with processes.Stage() as stage:
        child = stage.start("one", Command((sys.executable, "-c", UNMARKED)))
        assert processes.wait_until(lambda: not list(guard.marked(stage.mark)), 30, [child])
        assert stage.left() == [child.process.pid]
    assert child.process.returncode == -signal.SIGTERM
    assert stage.left() == []


@HAS_PROC
@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_the_proxy_of_a_rehearsal_is_ended_with_its_workers(tmp_path: Path) -> None:
    (port,) = processes.free_ports(1)
    rule = f"server {{ listen 127.0.0.1:{port}; return 404; }}\n"
    with processes.Stage() as stage:
        path = stage.folder / "nginx.conf"
        path.write_text(units.own_nginx(stage.folder, rule), encoding="utf-8")
        child = stage.start("proxy", Command((commands.nginx(), "-p", str(stage.folder), "-c", str(path))))
        assert processes.wait_until(lambda: processes.listens(port), 30, [child])
        assert child.process.pid in stage.left()
    assert stage.left() == []
    assert not processes.listens(port)


@HAS_PROC
def test_a_part_that_ends_is_a_failure_with_its_last_words() -> None:
    with processes.Stage() as stage:
        child = stage.start("one", Command((sys.executable, "-c", "print('no such port'); raise SystemExit(3)")))
        with pytest.raises(MachineError, match="one ended with exit code 3: no such port"):
            processes.wait_until(lambda: False, 30, [child])

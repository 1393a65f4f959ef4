"""Rules for the machine: power, processes, services, network, accounts, security, kernel, packages; use of root."""

from __future__ import annotations

import itertools
import re

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.read_only import is_read_only
from perdure.tools.shell_safety.rules.rule import (
    RiskRule,
    both,
    is_help,
    unless,
)
from perdure.tools.shell_safety.types import PROGRAM, word_set

_VITAL = re.compile(
    r"^(?:systemd\S{0,20}|init|sshd|dockerd|containerd|cron|crond|dbus\S{0,20}|NetworkManager|Xorg|gdm\d?|launchd|kubelet"
    r"|gnome-shell|plasmashell|kwin\S{0,20}|Xwayland|lightdm|sddm|rsyslogd|udevd|auditd|firewalld)$"
)
# Servers that others on the machine may use too.
_SERVERS = re.compile(r"^(?:postgres|postmaster|mysqld?|mariadbd?|mongod|redis-server|nginx|apache2|httpd|dockerd?)$")
# Programs that run what others on the machine have started.
_RUNTIMES = word_set("node python python3 java ruby php bash zsh sh ssh docker chrome firefox code")
_IP_CHANGES = word_set("add del delete flush replace change append prepend set restore exec up")
_DEBUGGER_READS = re.compile(
    r"\s*(?:bt|backtrace|where|thread\s|info\s|frame|detach|quit|q\b|set (?:pagination|confirm|width|height)|x/|list"
    r"|p \$)"
)
# Programs that run the rest of their line as root.
ROOT_PROGRAMS = word_set("sudo doas pkexec run0")
# Programs that only run others, which are checked themselves.
_ROOT_TRANSPARENT = word_set(
    "env xargs gxargs command eval nice ionice timeout gtimeout time nohup setsid stdbuf exec flock watch taskset chrt "
    "unbuffer script systemd-run chronic"
)
_ROOT_INSPECTS = word_set(
    "lsof journalctl ss netstat dmesg lsblk blkid dmidecode lspci lsusb lscpu lshw top htop iotop vmstat iostat "
    "findmnt last lastlog w who less more getent aureport ausearch smem pmap smartctl nginx-debug logger"
)
# Programs that talk to a service with root's rights anyway; their own rules decide.
_ROOT_ANYWAY = word_set("docker podman nerdctl docker-compose")
# Programs whose own rules decide by the paths they write.
_ROOT_BY_PATH = word_set("cp mv ln mkdir rmdir touch chown chgrp chmod install tee rm tar unzip")
_ROOT_COMMANDS = {
    name: word_set(commands)
    for names, commands in {
        "apt apt-get aptitude": "update clean autoclean list search show policy check download",
        "dnf yum microdnf zypper apk": "refresh ref makecache check-update clean list search se info",
        "snap flatpak": "list info find search",
        "systemctl": "status show cat is-active is-enabled list-units list-timers list-unit-files",
        "service rc-service": "status",
        "ufw nft": "status list",
        "ip": "addr address a link route r neigh",
    }.items()
    for name in names.split()
}
_ROOT_OPTIONS = {
    "crontab": ("-l",),
    "nginx": ("-t", "-T", "-v", "-V"),
    "apachectl": ("-t", "-S", "configtest"),
    "sshd": ("-t", "-T"),
    "visudo": ("-c",),
    "fdisk": ("-l",),
    "iptables": ("-L", "-S"),
    "ip6tables": ("-L", "-S"),
    "dpkg": ("-l", "-L", "-s", "-S"),
    "rpm": ("-q",),
    "pacman": ("-Q",),
}


def _kills_all(run: Invocation) -> bool:
    """Match `kill -1`, `kill -9 -1`, `kill -- -1`, `kill -9 1`: all processes, or init."""
    targets = list(run.args)
    signal = next((i for i, a in enumerate(targets) if a in ("-s", "-n", "--signal")), None)
    if signal is not None:
        del targets[signal : signal + 2]
    elif targets and re.fullmatch(r"-(?:\d+|[A-Z]+\d*)", targets[0]) and len(targets) > 1:
        targets.pop(0)
    return any(t in ("-1", "0", "1") for t in targets)


def _kills_every_listed(run: Invocation) -> bool:
    """Match `ps … | xargs kill` without a filter in between."""
    return "ps" in run.upstream and not {"grep", "egrep", "rg", "pgrep"}.intersection(run.upstream)


def _signals_servers(run: Invocation) -> bool:
    """Match `kill` and `renice` of what `pgrep` or `pidof` return for a system service or a server."""
    targets = (a.rpartition(PROGRAM)[2] for a in run.args if PROGRAM in a)
    return any(_VITAL.match(t) or _SERVERS.match(t) for t in targets)


def _attaches(run: Invocation) -> bool:
    """Match a debugger that changes a running process, not one that only prints its stack."""
    if run.name in ("strace", "ltrace"):
        values = (*run.all_values_of("-e", "--trace"), *(a for a in run.args if a.startswith("--")))
        return run.has("-p", "--attach") and any(re.match(r"(?:--)?(?:inject|fault)\b", v) for v in values)
    is_attached = run.has("--pid", "--attach-pid") or any(re.match(r"-p(?:\d|\Z)", a) for a in run.args)
    commands = run.all_values_of("-ex", "--eval-command", "-o", "--one-line", "-iex")
    is_attached = is_attached or any(re.match(r"\s*(?:attach|process attach)\b", c) for c in commands)
    is_attached = is_attached or bool(re.fullmatch(r"\d+", "".join(run.operands[1:2])) and run.name == "gdb")
    return is_attached and not (commands and all(_DEBUGGER_READS.match(c) or "attach" in c for c in commands))


def _schedules(run: Invocation) -> bool:
    return any(o.startswith(("--on-", "--timer-property")) for o in run.options)


def _kills_widely(run: Invocation) -> bool:
    patterns = [o for o in run.operands if o]
    if not patterns or any(len(p.strip(".*^$")) < 3 or _VITAL.match(p) or p in _RUNTIMES for p in patterns):
        return True
    return run.has("-u", "-U", "-G", "-g", "-t", "--euid", "--uid", "-v") or any(
        a in ("-9", "-KILL", "-SIGKILL", "-s9", "--signal") for a in run.args
    )


def _ip_changes(run: Invocation) -> bool:
    return any(w in _IP_CHANGES for w in run.operands[1:3]) or "down" in run.operands[1:]


def _changes_interface(run: Invocation) -> bool:
    """Match `ifconfig eth0 10.0.0.1` and `ifconfig eth0 down`; with one name it only shows."""
    return run.name in ("ifdown", "ifup") or len(run.operands) > 1


def _opens_root_shell(run: Invocation) -> bool:
    if run.name in ("sudo", "doas") and (run.has("-i", "-s", "--login", "--shell")) and not _has_command(run):
        return True
    names = [o.rsplit("/", 1)[-1] for o in run.operands]
    if run.name in ("sudo", "doas") and names[:1] in (["vi"], ["vim"], ["nvim"], ["less"], ["man"], ["ed"]):
        return any(re.search(r"!\s*(?:/\S*/)?(?:ba|z|da)?sh\b", a[:200]) for a in run.args)
    return (
        run.name in ("sudo", "doas", "pkexec", "run0")
        and (names[:1] in (["su"], ["bash"], ["sh"], ["zsh"]) and len(run.args) <= 3 and not run.has("-c"))
        and run.stdin is None
    )


def _has_command(run: Invocation) -> bool:
    return bool([o for o in run.operands if o not in ("root",)])


def _clears_history(run: Invocation) -> bool:
    return run.has("-c", "-w", "-d") or "-c" in run.args


def _disables_history(run: Invocation) -> bool:
    if run.name == "set":
        return "+o" in run.args and "history" in run.args
    return any(re.fullmatch(r"HIST(?:FILE|SIZE)(?:=(?:0?|/dev/null))?", a) for a in run.args)


def _only_shows(words: tuple[str, ...]) -> bool:
    """Whether a command about Perdure's own settings changes nothing."""
    return not words or words[0] in ("show", "list", "get", "path", "check")


def _reads_password(run: Invocation) -> bool:
    """Match `sudo -S`, before the command that it runs."""
    options = itertools.takewhile(lambda a: a.startswith("-"), run.args)
    return any(a in ("-S", "--stdin") for a in options)


def _writes_sysctl(run: Invocation) -> bool:
    return run.has("-w", "--write", "-p", "--load", "--system") or any("=" in o for o in run.operands)


RULES = (
    RiskRule("system-files", "date", lambda r: "-s" in r.args or r.has("--set"), "date -s 2020-01-01"),
    RiskRule("kill", "kill", _kills_all, "kill -9 -1"),
    RiskRule("kill", "kill", _kills_every_listed, "ps aux | awk '{print $2}' | xargs kill -9"),
    RiskRule("kill", "kill renice", _signals_servers, "pgrep -f postgres | xargs kill -STOP"),
    RiskRule("environment", "gdb lldb strace ltrace", _attaches, "gdb -p 1234 -ex 'call (int)system(\"id\")'"),
    RiskRule("kill", "pkill skill slay", both(_kills_widely, unless(is_help)), "pkill -9 -u root"),
    RiskRule(
        "firmware",
        "pio platformio",
        lambda r: any(v in ("upload", "uploadfs", "erase", "program") for v in r.all_values_of("-t", "--target")),
        "pio run -t upload",
    ),
    RiskRule("startup-files", "systemd-run", _schedules, "systemd-run --on-calendar=daily ./job"),
    RiskRule("network", "ip", _ip_changes, "ip link set eth0 down"),
    RiskRule("network", "ifconfig ifdown ifup", _changes_interface, "ifconfig eth0 down"),
    RiskRule("kernel", "sysctl", _writes_sysctl, "sysctl -w kernel.randomize_va_space=0"),
    RiskRule(
        "startup-files",
        "systemctl",
        lambda r: r.starts("enable") and (r.has("--user") or any("/" in o for o in r.operands)),
        "systemctl enable /tmp/x.service",
    ),
    RiskRule(
        "services",
        "supervisorctl pm2",
        lambda r: r.operands[:1] in (("stop",), ("delete",)) and (not r.operands[1:] or "all" in r.operands),
        "pm2 delete all",
    ),
    RiskRule("security", "history", _clears_history, "history -c"),
    RiskRule("security", "unset export set declare", _disables_history, "unset HISTFILE"),
    RiskRule(
        "security",
        "npm yarn pnpm",
        lambda r: "config" in r.operands and any("strict-ssl" in a for a in r.args) and "false" in " ".join(r.args),
        "npm config set strict-ssl false",
    ),
    RiskRule("privileges", "sudo doas pkexec run0", _opens_root_shell, "sudo su"),
    RiskRule("privileges", "sudo", _reads_password, "echo secret | sudo -S id"),
    RiskRule("privileges", "run0", lambda r: not r.args, "run0"),
    RiskRule(
        "hidden-code",
        "powershell pwsh",
        lambda r: any(re.fullmatch(r"(?i)-e(?:c|nc|ncodedcommand)?", a) for a in r.args),
        "powershell -enc aQBlAHgA",
    ),
    RiskRule(
        "own-rules",
        "perdure",
        lambda r: r.operands[:1] in (("permissions",), ("approvals",), ("config",)) and not _only_shows(r.operands[1:]),
        "perdure permissions trust",
    ),
)


def is_usual_as_root(run: Invocation) -> bool:
    """Whether a command may run as root as it may otherwise: it reads, or its own rules cover what is risky."""
    if (
        is_help(run)
        or run.name in _ROOT_INSPECTS | _ROOT_ANYWAY | _ROOT_TRANSPARENT | ROOT_PROGRAMS
        or is_read_only(run)
    ):
        return True
    if run.name in _ROOT_BY_PATH:
        return all(_is_free(run, o) for o in run.operands)
    if run.name in ("make", "gmake", "ninja"):
        return not any("install" in o for o in run.operands)
    if run.name in _ROOT_OPTIONS:
        return any(a in run.args or run.has(a) for a in _ROOT_OPTIONS[run.name])
    allowed = _ROOT_COMMANDS.get(run.name, frozenset())
    # `service` takes the name of the service first.
    words = run.operands[1:2] if run.name in ("service", "rc-service") else run.operands[:1]
    return any(w in allowed for w in words)


def _is_free(run: Invocation, path: str) -> bool:
    location = run.classify(path)
    return location.zone in ("workspace", "fresh") or location.is_scratch

"""Commands run with the rights of root: which of them are usual, and which need approval."""

from __future__ import annotations

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.read_only import is_read_only
from perdure.tools.shell_safety.rules.rule import is_help
from perdure.tools.shell_safety.types import word_set

# Programs that run the rest of their line as root.
ROOT_PROGRAMS = word_set("sudo doas pkexec run0")
# Programs that only run others, which are checked themselves.
_TRANSPARENT = word_set(
    "env xargs gxargs command eval nice ionice timeout gtimeout time nohup setsid stdbuf exec flock watch taskset chrt "
    "unbuffer script systemd-run chronic"
)
_INSPECTS = word_set(
    "lsof journalctl ss netstat dmesg lsblk blkid dmidecode lspci lsusb lscpu lshw top htop iotop vmstat iostat "
    "findmnt last lastlog w who less more getent aureport ausearch smem pmap smartctl nginx-debug logger"
)
# Programs that talk to a service with root's rights anyway; their own rules decide.
_ROOT_ANYWAY = word_set("docker podman nerdctl docker-compose")
# Programs whose own rules decide by the paths they write.
_BY_PATH = word_set("cp mv ln mkdir rmdir touch chown chgrp chmod install tee rm tar unzip")
_COMMANDS = {
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
_OPTIONS = {
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


def is_usual_as_root(run: Invocation) -> bool:
    """Whether a command may run as root as it may otherwise: it reads, or its own rules cover what is risky."""
    if is_help(run) or run.name in _INSPECTS | _ROOT_ANYWAY | _TRANSPARENT | ROOT_PROGRAMS or is_read_only(run):
        return True
    if run.name in _BY_PATH:
        return all(_is_free(run, o) for o in run.operands)
    if run.name in ("make", "gmake", "ninja"):
        return not any("install" in o for o in run.operands)
    if run.name in _OPTIONS:
        return any(a in run.args or run.has(a) for a in _OPTIONS[run.name])
    allowed = _COMMANDS.get(run.name, frozenset())
    # `service` takes the name of the service first.
    words = run.operands[1:2] if run.name in ("service", "rc-service") else run.operands[:1]
    return any(w in allowed for w in words)


def _is_free(run: Invocation, path: str) -> bool:
    location = run.classify(path)
    return location.zone in ("workspace", "fresh") or location.is_scratch

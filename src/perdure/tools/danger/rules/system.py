"""The machine: power, processes, services, network, accounts, protection, the kernel, installed software."""

from __future__ import annotations

import re

from perdure.tools.danger.rules.rule import (
    Rule,
    always,
    any_command,
    any_operand,
    asks_help,
    both,
    either,
    option,
    unless,
)
from perdure.tools.danger.run import Run

_VITAL = re.compile(
    r"^(?:systemd|init|sshd|dockerd|containerd|cron|crond|dbus|NetworkManager|Xorg|gdm|launchd|kubelet)$"
)


def _kills_all(run: Run) -> bool:
    """`kill -1`, `kill -9 -1`, `kill -- -1`, `kill -9 1`: everything, or the first process."""
    targets = list(run.args)
    signal = next((i for i, a in enumerate(targets) if a in ("-s", "-n", "--signal")), None)
    if signal is not None:
        del targets[signal : signal + 2]
    elif targets and re.fullmatch(r"-(?:\d+|[A-Z]+\d*)", targets[0]) and len(targets) > 1:
        targets.pop(0)
    return any(t in ("-1", "0", "1") for t in targets)


def _pkill_wide(run: Run) -> bool:
    patterns = [o for o in run.operands if o]
    if not patterns or any(len(p.strip(".*^$")) < 3 or _VITAL.match(p) for p in patterns):
        return True
    return run.has("-u", "-U", "-G", "-g", "-t", "--euid", "--uid", "-v") or any(
        a in ("-9", "-KILL", "-SIGKILL", "-s9", "--signal") for a in run.args
    )


def _crontab(run: Run) -> bool:
    return not run.has("-l") and not asks_help(run)


def _writes_sysctl(run: Run) -> bool:
    return run.has("-w", "--write", "-p", "--load", "--system") or any("=" in o for o in run.operands)


def _mounts(run: Run) -> bool:
    return (bool(run.operands) or (run.name == "umount" and run.has("-a"))) and not run.has(
        "--show-labels", "--fake", "-V"
    )


def _ip_changes(run: Run) -> bool:
    words = run.operands
    return any(w in ("flush", "del", "delete", "down") for w in words[1:])


def _root_shell(run: Run) -> bool:
    if run.name in ("sudo", "doas") and (run.has("-i", "-s", "--login", "--shell")) and not _has_command(run):
        return True
    names = [o.rsplit("/", 1)[-1] for o in run.operands]
    if run.name in ("sudo", "doas") and names[:1] in (["vi"], ["vim"], ["nvim"], ["less"], ["man"], ["ed"]):
        return any(re.search(r"!\s*(?:/\S*/)?(?:ba|z|da)?sh\b", a[:200]) for a in run.args)
    return (
        run.name in ("sudo", "doas", "pkexec")
        and (names[:1] in (["su"], ["bash"], ["sh"], ["zsh"]) and len(run.args) <= 3 and not run.has("-c"))
        and run.stdin is None
    )


def _has_command(run: Run) -> bool:
    return bool([o for o in run.operands if o not in ("root",)])


def _service_stop(run: Run) -> bool:
    return any(o in ("stop", "disable", "remove", "delete", "mask", "kill") for o in run.operands)


def _forgets(run: Run) -> bool:
    return run.has("-c", "-w", "-d") or "-c" in run.args


def _history_off(run: Run) -> bool:
    if run.name == "set":
        return "+o" in run.args and "history" in run.args
    return any(re.fullmatch(r"HIST(?:FILE|SIZE)(?:=(?:0?|/dev/null))?", a) for a in run.args)


RULES = (
    Rule("power", "shutdown reboot halt poweroff", unless(either(asks_help, option("-c"))), "shutdown -h now"),
    Rule("power", "init telinit", any_operand("0", "1", "6", "S"), "init 0"),
    Rule(
        "power",
        "systemctl loginctl",
        any_operand("poweroff", "reboot", "halt", "kexec", "rescue", "emergency", "suspend", "hibernate"),
        "systemctl reboot",
    ),
    Rule("kill", "kill", _kills_all, "kill -9 -1"),
    Rule("kill", "killall killall5", unless(either(asks_help, option("-l", "--list"))), "killall -9 node"),
    Rule("kill", "pkill skill slay", both(_pkill_wide, unless(asks_help)), "pkill -9 -u root"),
    Rule("kill", "fuser", option("-k", "--kill"), "fuser -k 8080/tcp"),
    Rule("kill", "taskkill", option("/F"), "taskkill /F /IM explorer.exe"),
    Rule("kill", "taskkill Stop-Process", always, "taskkill /IM explorer.exe"),
    Rule(
        "services",
        "systemctl",
        any_operand("stop", "disable", "mask", "kill", "isolate", "set-default", "revert"),
        "systemctl stop nginx",
    ),
    Rule("services", "service rc-service invoke-rc.d initctl sv", _service_stop, "service ssh stop"),
    Rule("services", "update-rc.d chkconfig", any_operand("remove", "disable", "off"), "update-rc.d ssh remove"),
    Rule(
        "services",
        "launchctl",
        any_operand("unload", "remove", "bootout", "disable", "kill", "reboot"),
        "launchctl unload /Library/LaunchDaemons/x.plist",
    ),
    Rule("services", "sc net", any_operand("delete", "stop"), "net stop winmgmt"),
    Rule("startup-files", "crontab", _crontab, "crontab -r"),
    Rule(
        "startup-files",
        "at batch",
        lambda r: not r.has("-l") and not asks_help(r) and r.name == "at" and bool(r.args),
        "at midnight -f cleanup.sh",
    ),
    Rule(
        "startup-files",
        "systemctl",
        lambda r: r.starts("link") or (r.starts("enable") and any("/" in o for o in r.operands)),
        "systemctl enable /tmp/x.service",
    ),
    Rule(
        "network",
        "iptables ip6tables iptables-legacy",
        option("-F", "-X", "-P", "-D", "-Z", "--flush", "--policy", "--delete-chain"),
        "iptables -F",
    ),
    Rule("network", "iptables-restore ip6tables-restore pfctl", unless(option("-s")), "iptables-restore < empty"),
    Rule("network", "nft", any_operand("flush", "delete"), "nft flush ruleset"),
    Rule("network", "ufw", any_command("disable", "reset", "delete"), "ufw disable"),
    Rule(
        "network",
        "firewall-cmd",
        option("--panic-on", "--remove-service", "--remove-port", "--complete-reload"),
        "firewall-cmd --panic-on",
    ),
    Rule("network", "ip", _ip_changes, "ip link set eth0 down"),
    Rule("network", "ifconfig ifdown", lambda r: "down" in r.operands or r.name == "ifdown", "ifconfig eth0 down"),
    Rule("network", "route arp", any_operand("del", "delete", "flush"), "route del default"),
    Rule("network", "netsh", any_operand("off", "reset", "delete"), "netsh advfirewall set allprofiles state off"),
    Rule("network", "nmcli", any_operand("off", "delete", "down"), "nmcli networking off"),
    Rule(
        "users",
        "useradd userdel usermod groupadd groupdel groupmod adduser deluser addgroup delgroup gpasswd chpasswd",
        unless(asks_help),
        "userdel -r bob",
    ),
    Rule("users", "passwd chsh chfn vipw visudo", unless(either(asks_help, option("-S", "--status"))), "passwd root"),
    Rule(
        "users", "dscl sysadminctl", unless(any_operand("-read", "-list", "read", "list")), "dscl . -delete /Users/bob"
    ),
    Rule("users", "net", any_command("user", "localgroup"), "net user bob secret /add"),
    Rule("security", "setenforce", any_operand("0", "Permissive", "permissive"), "setenforce 0"),
    Rule("security", "aa-teardown aa-disable aa-complain apparmor_parser", unless(asks_help), "aa-teardown"),
    Rule("security", "auditctl", option("-D", "-e"), "auditctl -e 0"),
    Rule("security", "csrutil spctl", lambda r: any("disable" in a for a in r.args), "csrutil disable"),
    Rule("security", "history", _forgets, "history -c"),
    Rule("security", "unset export set declare", _history_off, "unset HISTFILE"),
    Rule("security", "Set-MpPreference", always, "Set-MpPreference -DisableRealtimeMonitoring 1"),
    Rule("security", "ssh-keyscan xhost", lambda r: r.name == "xhost" and "+" in r.args, "xhost +"),
    Rule(
        "security",
        "journalctl",
        lambda r: any(o.startswith("--vacuum") or o == "--rotate" for o in r.options),
        "journalctl --vacuum-time=1s",
    ),
    Rule("security", "wevtutil", any_operand("cl", "clear-log"), "wevtutil cl Security"),
    Rule(
        "security",
        "npm yarn pnpm",
        lambda r: "config" in r.operands and any("strict-ssl" in a for a in r.args) and "false" in " ".join(r.args),
        "npm config set strict-ssl false",
    ),
    Rule(
        "kernel",
        "modprobe insmod rmmod kexec depmod",
        unless(either(asks_help, option("-n", "--dry-run", "-D"))),
        "rmmod nvidia",
    ),
    Rule("kernel", "sysctl", _writes_sysctl, "sysctl -w kernel.randomize_va_space=0"),
    Rule("kernel", "mount umount", _mounts, "umount -l /data"),
    Rule("kernel", "swapoff swapon", option("-a", "--all"), "swapoff -a"),
    Rule("kernel", "grub-install update-grub efibootmgr bcdedit", unless(asks_help), "grub-install /dev/sda"),
    Rule("kernel", "sysrq-trigger", always, "sysrq-trigger"),
    Rule(
        "packages",
        "apt apt-get aptitude",
        both(
            any_command("remove", "purge", "autoremove", "dist-upgrade", "full-upgrade"),
            unless(option("-s", "--simulate", "--dry-run")),
        ),
        "apt-get purge -y python3",
    ),
    Rule("packages", "dpkg", option("-r", "-P", "--remove", "--purge"), "dpkg --purge libc6"),
    Rule("packages", "yum dnf zypper microdnf", any_command("remove", "erase", "autoremove", "rm"), "yum remove glibc"),
    Rule("packages", "rpm", option("-e", "--erase"), "rpm -e --nodeps glibc"),
    Rule("packages", "pacman", lambda r: any(re.match(r"-R", o) for o in r.options), "pacman -Rns systemd"),
    Rule("packages", "snap flatpak port apk", any_command("remove", "uninstall", "del"), "snap remove --purge lxd"),
    Rule("privileges", "sudo doas pkexec", _root_shell, "sudo su"),
    Rule("privileges", "su", lambda r: not r.has("-c", "--command") and r.stdin is None and not asks_help(r), "su -"),
    Rule(
        "hidden-code",
        "powershell pwsh",
        lambda r: any(re.fullmatch(r"(?i)-e(?:c|nc|ncodedcommand)?", a) for a in r.args),
        "powershell -enc aQBlAHgA",
    ),
    Rule("security", "reg", any_command("delete", "add", "import"), "reg delete HKLM\\Software /f"),
    Rule("disk", "vssadmin wbadmin", any_command("delete"), "vssadmin delete shadows /all"),
    Rule("disk", "cipher", lambda r: any(a.lower().startswith("/w") for a in r.args), "cipher /w:C"),
    Rule("security", "defaults", any_command("delete"), "defaults delete com.apple.dock"),
    Rule(
        "security",
        "tmutil",
        lambda r: any(o.lower().startswith(("delete", "disable")) for o in r.operands),
        "tmutil disable",
    ),
    Rule(
        "services",
        "supervisorctl pm2",
        lambda r: (
            r.operands[:1] in (("stop",), ("delete",), ("kill",), ("shutdown",))
            and (not r.operands[1:] or "all" in r.operands or r.operands[0] in ("kill", "shutdown"))
        ),
        "pm2 delete all",
    ),
)

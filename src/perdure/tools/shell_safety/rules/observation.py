"""Rules for programs that observe: the user's screen, sound, keys and clipboard, traffic, processes, other machines."""

from __future__ import annotations

import re

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.paths import STORAGE_DEVICE
from perdure.tools.shell_safety.rules.rule import RiskRule, is_help
from perdure.tools.shell_safety.rules.sending import LOCAL_URL
from perdure.tools.shell_safety.types import word_set

# Input formats of ffmpeg that are a screen, a camera or a microphone.
_CAPTURE_FORMATS = word_set(
    "x11grab kmsgrab gdigrab fbdev xcbgrab avfoundation qtkit dshow vfwcap v4l2 video4linux2 alsa pulse oss sndio jack "
    "audiotoolbox decklink openal android_camera"
)
_CAPTURE_DEVICE = re.compile(r"/dev/(?:video|snd/|dsp|fb\d|input/)|(?:v4l2|screen|alsa|pulse|dshow|qtcapture|av)://")
_CAPTURE_ELEMENT = re.compile(
    r"(?:v4l2|xi?mage|pulse|alsa|pipewire|autovideo|autoaudio|avfvideo|osxaudio|d3d11screencapture|gdiscreencap|wasapi"
    r"|libcamera)src\Z"
)
_DESKTOP_REQUEST = re.compile(r"getClipboard|Screenshot|ScreenCast|(?<!set )the clipboard|Get-Clipboard|CopyFromScreen")
# System calls whose traced arguments are what a process reads and sends.
_CONTENT_CALLS = re.compile(
    r"\b(?:p?read(?:v|64)?|p?write(?:v|64)?|recv(?:from|msg|mmsg)?|send(?:to|msg|mmsg)?|network|net|desc|all)\b"
)
_PORT_LIST = re.compile(r"\d{1,5}(?:,\d{1,5}){0,4}\Z")
_NMAP_VALUES = ("-p", "-o", "-oN", "-oX", "-oG", "-oA", "-e", "-S", "-g", "-T", "--script", "--top-ports", "-iL", "-D")
_LOOPBACK = re.compile(r"localhost\Z|127\.|\[?::1\]?\Z|0\.0\.0\.0\Z")


def _captures(run: Invocation) -> bool:
    """Match a device as an input of ffmpeg; the same format after the input is playback."""
    args = run.args
    if run.has("-list_devices", "-sources", "-devices"):
        return False
    for i, a in enumerate(args[:-1]):
        if a == "-f" and args[i + 1] in _CAPTURE_FORMATS and ("-i" in args[i + 2 :] or run.name == "ffplay"):
            return True
    return any(_CAPTURE_DEVICE.match(v) for v in run.all_values_of("-i"))


def _reads_device(run: Invocation) -> bool:
    """Match the bytes of a camera, a microphone, a keyboard, a disk or the memory, read as a file."""
    sources = (*run.reads, *(a.removeprefix("if=") for a in run.args))
    return any(_CAPTURE_DEVICE.match(s) or STORAGE_DEVICE.match(s) for s in sources)


def _asks_desktop(run: Invocation) -> bool:
    """Match the clipboard or a screenshot that is requested from the desktop by a message or a script."""
    return any(_DESKTOP_REQUEST.search(a[:2_000]) for a in run.args)


def _plays_device(run: Invocation) -> bool:
    return any(_CAPTURE_DEVICE.match(o) for o in run.operands)


def _builds_capture(run: Invocation) -> bool:
    return any(_CAPTURE_ELEMENT.match(word) for o in run.operands for word in o[:2_000].split())


def _records_sound(run: Invocation) -> bool:
    if run.name == "sox":
        return run.args[:1] == ("-d",) or run.args[:2] in (("-t", "alsa"), ("-t", "pulseaudio"), ("-t", "coreaudio"))
    if run.name == "pw-cat":
        return run.has("-r", "--record")
    return not (is_help(run) or run.has("-l", "-L", "--list-devices", "--list-pcms"))


def _reads_clipboard(run: Invocation) -> bool:
    if is_help(run):
        return False
    if run.name == "xclip":
        return any(len(a) > 1 and "-out".startswith(a) for a in run.args)
    if run.name == "xsel":
        is_written = run.stdin is not None or run.has("-i", "-a", "-c", "-k", "-d", "--input", "--append", "--clear")
        return run.has("-o", "--output") or not is_written
    return True


def _captures_traffic(run: Invocation) -> bool:
    """Match a live capture, not the reading of a file or a list of interfaces."""
    is_listing = run.has("-D", "--list-interfaces", "-G", "--version") or is_help(run)
    is_file = run.has("-I") if run.name == "ngrep" else run.has("-r", "--read-file") or bool(run.reads)
    return not (is_listing or is_file)


def _traces_content(run: Invocation) -> bool:
    """Match a trace of a running process that shows what it reads and sends; other system calls carry no content."""
    if not (run.has("--attach") or any(re.match(r"-[a-zA-Z]{0,6}p(?:\d|\Z)", a) for a in run.args)):
        return False
    length = run.value_of("-s", "--string-limit") or ""
    filters = run.all_values_of("-e", "--trace", "--read", "--write")
    is_long = length.isdecimal() and int(length[:9]) > 64
    return is_long or any(_CONTENT_CALLS.search(f.partition("=")[2] or f) or f.startswith("read=") for f in filters)


def _scans(run: Invocation) -> bool:
    """Match a scan of another machine, except a few named ports of one host."""
    if is_help(run) or not {"-sL", "--script-help", "--iflist"}.isdisjoint(run.options):
        return False
    values = run.all_values_of(*_NMAP_VALUES)
    targets = [o for o in run.operands if o not in values]
    if run.has("-iL", "-iR") or any(a.startswith("-i") and a[2:3] in ("L", "R") for a in run.args):
        return True
    foreign = [t for t in targets if not _LOOPBACK.match(t)]
    is_range = any(re.search(r"/\d{1,3}\Z|\d-\d|\*", t) for t in foreign)
    is_probe = run.name == "nmap" and len(foreign) == 1 and bool(_PORT_LIST.match(run.value_of("-p") or ""))
    is_intrusive = run.has("-A", "-O", "--script") or any(re.match(r"-s[SUFXNAWM]", a) for a in run.args)
    return bool(foreign) and (is_range or is_intrusive or not is_probe)


def _sweeps_ports(run: Invocation) -> bool:
    is_range = any(re.fullmatch(r"\d{1,5}-\d{1,5}", o) for o in run.operands)
    return run.has("-z") and is_range and not any(LOCAL_URL.match(o) for o in run.operands)


def _loads(run: Invocation) -> bool:
    """Match a load test of another machine; the targets of `vegeta attack` are in its input or in a file."""
    if run.name == "vegeta" and run.starts("attack"):
        return _LOCAL_TARGET.search(" ".join((*run.args, run.stdin or ""))[:2_000]) is None
    addresses = (re.search(r"https?://\S{1,200}", a[:500]) for a in run.args)
    return any(address is not None and not LOCAL_URL.match(address.group()) for address in addresses)


def _floods(run: Invocation) -> bool:
    return run.has("-f") and not any(LOCAL_URL.match(o) for o in run.operands)


_LOCAL_TARGET = re.compile(r"//(?:localhost|127\.|\[::1\])")

RULES: tuple[RiskRule, ...] = (
    RiskRule("recording", "ffmpeg ffplay avconv", _captures, "ffmpeg -f x11grab -i :0 -t 5 clip.mp4"),
    RiskRule("recording", "cat dd head tail cp xxd od hexdump strings tee nc", _reads_device, "cat /dev/input/event3"),
    RiskRule(
        "recording",
        "qdbus qdbus6 gdbus dbus-send busctl osascript powershell pwsh",
        _asks_desktop,
        "qdbus org.kde.klipper /klipper getClipboardContents",
    ),
    RiskRule("recording", "vlc cvlc mpv mplayer", _plays_device, "cvlc v4l2:///dev/video0"),
    RiskRule(
        "recording", "gst-launch-1.0 gst-launch", _builds_capture, "gst-launch-1.0 pulsesrc ! filesink location=a"
    ),
    RiskRule("recording", "arecord parecord parec pw-record pw-cat rec sox", _records_sound, "arecord -d 5 a.wav"),
    RiskRule("recording", "xclip xsel wl-paste pbpaste Get-Clipboard", _reads_clipboard, "xclip -o"),
    RiskRule(
        "recording",
        "tcpdump tshark dumpcap termshark ngrep tcpflow snoop",
        _captures_traffic,
        "tcpdump -i any -w all.pcap",
    ),
    RiskRule("recording", "strace ltrace truss dtruss", _traces_content, "strace -p 812 -e trace=read,write"),
    RiskRule("scan", "nmap masscan zmap rustscan naabu unicornscan", _scans, "nmap -sS 192.168.0.0/16"),
    RiskRule(
        "scan",
        "ab wrk wrk2 hey k6 locust artillery siege bombardier oha autocannon vegeta drill plow h2load ghz fortio "
        "cassowary ddosify tsung apache2-bench bombard slowcooker",
        _loads,
        "wrk -c 4000 -d 300s https://shop.example/",
    ),
    RiskRule("scan", "nc ncat netcat", _sweeps_ports, "nc -z host.example 1-65535"),
    RiskRule("scan", "ping", _floods, "ping -f host.example"),
)

"""What a program of an agent can reach from inside its container, as one JSON object. Standard library alone."""

import glob
import json
import os
import socket
import subprocess
import time

PLACES = ("192.0.2.1:443", "169.254.169.254:80", "172.17.0.1:22", "172.17.0.1:2375", "8.8.8.8:53", "[2001:db8::1]:443")


def tried(call):
    """What a call gave: `done`, or the name of its error and how long it took."""
    begin = time.monotonic()
    try:
        call()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200], "s": round(time.monotonic() - begin, 2)}
    return "done"


def connect(place):
    host, _, port = place.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()


def marked():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, 36, 114514)


def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


def readable(*patterns):
    """Names and first bytes of all that can be read below some places."""
    found = {}
    for pattern in patterns:
        for name in glob.glob(pattern, recursive=True):
            try:
                with open(name, "rb") as stream:
                    found[name] = stream.read(1 << 20).decode(errors="replace")
            except OSError:
                continue
    return found


def write(path):
    with open(path, "w") as stream:
        stream.write("x")


status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines() if ":" in line)
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev").read().splitlines()[2:]]
print(json.dumps({
    "interfaces_up": [i for i in interfaces if int(open(f"/sys/class/net/{i}/flags").read(), 16) & 1],
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "dns": tried(lambda: socket.getaddrinfo("api.anthropic.com", 443)),
    "connect": {place: tried(lambda place=place: connect(place)) for place in PLACES},
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "CapEff": status["CapEff"].strip(), "CapBnd": status["CapBnd"].strip(), "NoNewPrivs": status["NoNewPrivs"].strip(),
    "Seccomp": status["Seccomp"].strip(),
    "write": {path: tried(lambda path=path: write(path)) for path in
              ("/x", "/opt/repro/repro/judge/correctness/tolerances.py", "/opt/repro/x", "/etc/x", "/opt/venv/x",
               "/opt/repro/repro/knowledge/x", "/job/files/x", "/tmp/x")},
    "docker_sock": [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)],
    "masked": {path: os.listdir(path) for path in
               ("/opt/repro/artifacts", "/opt/repro/tests", "/opt/repro/repro/knowledge")},
    "unmask": [tried(lambda: run("umount", "/opt/repro/artifacts")),
               tried(lambda: run("mount", "-o", "remount,rw", "/opt/repro/artifacts")),
               tried(lambda: run("unshare", "-Urm", "umount", "/opt/repro/artifacts"))],
    "marked": tried(marked), "raw": tried(raw), "unshare_user": tried(lambda: run("unshare", "-U", "true")),
    "unshare_net": tried(lambda: run("unshare", "-n", "true")), "mount": tried(lambda: run("unshare", "-m", "true")),
    "env": dict(os.environ),
    "read": readable("/proc/*/environ", "/proc/*/cmdline"),
    "memory_of_1": tried(lambda: open("/proc/1/mem", "rb").read(1)),
    "kill_1": tried(lambda: [os.kill(1, number) for number in (1, 2, 9, 15, 19)]),
    "solutions_in_reach": [n for n in glob.glob("/opt/**/*RMSNorm*", recursive=True) if "/problems/" not in n],
    "processes": sorted(open(f"/proc/{p}/comm").read().strip() for p in os.listdir("/proc") if p.isdigit()),
}))  # fmt: skip

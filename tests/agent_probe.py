"""What a program of an agent can reach from inside its container, as one JSON object. Standard library alone.

Run by a scripted agent through its own `bash` tool: what this finds is what any agent could find.
"""

import glob
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

GATEWAY = "http://127.0.0.1:8080"
MODEL = "@MODEL@"
# What would tell an agent its arm, put together here: this file is in sight, too.
ARMS = ["/".join(("L1_36", arm, "0")) for arm in ("baseline", "with" + "_kb")] + ["with" + "_kb"]
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


def unshared(*flags):
    done = subprocess.run(["unshare", *flags, "true"], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


def asked(method, path, body=None, **headers):
    """The status of a request to the gateway."""
    data = None if body is None else json.dumps(body).encode()
    told = {"content-type": "application/json", "x-api-key": "repro-probe", "anthropic-version": "2023-06-01"} | headers
    request = urllib.request.Request(GATEWAY + path, data, told, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def messages(**changes):
    body = {"model": MODEL, "max_tokens": 16,
            "messages": [{"role": "user", "content": "hello"}]}  # fmt: skip
    return asked("POST", "/v1/messages", body | changes)


def image(source):
    return [{"role": "user", "content": [{"type": "image", "source": source}]}]


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
up = [name for name in interfaces if int(open(f"/sys/class/net/{name}/flags").read(), 16) & 1]
print("PROBE" + json.dumps({
    "interfaces_up": up,
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "dns": tried(lambda: socket.getaddrinfo("api.anthropic.com", 443)),
    "connect": {place: tried(lambda place=place: connect(place)) for place in PLACES},
    "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(),
    "CapEff": status["CapEff"].strip(), "CapBnd": status["CapBnd"].strip(), "NoNewPrivs": status["NoNewPrivs"].strip(),
    "Seccomp": status["Seccomp"].strip(),
    "processors": readable("/sys/fs/cgroup/cpu/cpu.shares", "/sys/fs/cgroup/cpu.weight"),
    "write": {path: tried(lambda path=path: write(path)) for path in
              ("/x", "/opt/repro/repro/judge/correctness/tolerances.py", "/opt/repro/x",
              "/gateway-sock/x", "/etc/x", "/opt/venv/x",
               "/opt/repro/repro/knowledge/x", "/job/problems/x", "/tmp/x")},
    "docker_sock": [path for path in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(path)],
    "masked": {path: os.listdir(path) for path in
               ("/opt/repro/artifacts", "/opt/repro/tests", "/opt/repro/repro/knowledge", "/gateway")},
    "unmask": tried(lambda: subprocess.run(["umount", "/opt/repro/artifacts"], check=True, capture_output=True)),
    "sock": os.listdir("/gateway-sock"),
    "marked": tried(marked), "raw": tried(raw), "unshare_user": tried(lambda: unshared("-U")),
    "unshare_net": tried(lambda: unshared("-n")), "mount": tried(lambda: unshared("-m")),
    "env": dict(os.environ),
    "read": {name: text for name, text in
             readable("/proc/*/environ", "/proc/*/cmdline", "/gateway/**", "/gateway-sock/**").items()},
    "arm_told": [name for name, text in readable("/job/**", "/tmp/**", "/proc/*/environ", "/proc/*/cmdline").items()
                 if any(arm in text for arm in ARMS)],
    "solutions_in_reach": [name for name in glob.glob("/opt/**/*RMSNorm*", recursive=True)],
    "processes": sorted(open(f"/proc/{p}/comm").read().strip() for p in os.listdir("/proc") if p.isdigit()),
    "gateway": {
        "other_path": asked("GET", "/v1/models"), "files": asked("POST", "/v1/files", {}),
        "batches": asked("POST", "/v1/messages/batches", {}), "absolute": asked("GET", "/http://192.0.2.1/"),
        "other_model": messages(model="claude-haiku-4-5-20251001"),
        "web_search": messages(tools=[{"type": "web_search_20260318", "name": "web_search"}]),
        "web_fetch": messages(tools=[{"type": "web_fetch_20260318", "name": "web_fetch"}]),
        "code_execution": messages(tools=[{"type": "code_execution_20260521", "name": "code_execution"}]),
        "mcp_servers": messages(mcp_servers=[{"type": "url", "url": "https://192.0.2.1/mcp", "name": "x"}]),
        "image_url": messages(messages=image({"type": "url", "url": "https://192.0.2.1/x.png"})),
        "file": messages(messages=image({"type": "file", "file_id": "file_1"})),
        "mcp": asked("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
                     accept="application/json, text/event-stream"),
    },
}))  # fmt: skip

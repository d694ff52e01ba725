#!/usr/bin/env bash
# Makes a Debian bookworm base image, for building the Dockerfile where the pinned CUDA base cannot be pulled:
#
#     tests/base_image.sh TAG          e.g. repro-base:bookworm
#     make image BASE_IMAGE=TAG
#
# It has no CUDA toolkit and no nvcc: torch's wheels bring the CUDA libraries, triton's its own ptxas. The mirror, the apt
# options and any extra certificate authorities are this machine's own. If TAG exists already, nothing is done.
set -euo pipefail

fail() { echo "base_image.sh: $*" >&2; exit 1; }

[ $# -eq 1 ] || fail "give one argument, the tag of the image to make, such as repro-base:bookworm"
tag=$1
docker version >/dev/null 2>&1 || fail "no Docker engine answers; start one, then run this again"
if docker image inspect "$tag" >/dev/null 2>&1; then
  echo "$tag is here already"
  exit 0
fi
[ "$(id -u)" -eq 0 ] || fail "debootstrap needs root; run this with sudo"
command -v debootstrap >/dev/null || fail "debootstrap is not installed; run: apt-get install debootstrap"

# shellcheck disable=SC2016 # apt expands these names, not the shell
sources=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
  awk '$2 ~ /^bookworm(-updates|-security)?$/' | sort -u)
mirror=$(awk '$2 == "bookworm" && $3 == "main" { print $1; exit }' <<<"$sources")
[ -n "$mirror" ] || fail "this machine's apt sources have no bookworm main; add a Debian bookworm source to them"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
if ! debootstrap --variant=minbase --include=ca-certificates bookworm "$root" "$mirror" >"$work/log" 2>&1; then
  tail -n 5 "$work/log" >&2
  fail "debootstrap failed with the lines above"
fi

# apt: the same mirror and the same transport options as here, without this machine's hooks.
awk '{ print "deb", $1, $2, $3 }' <<<"$sources" >"$root/etc/apt/sources.list"
apt-config dump | grep -E '^Acquire::(https?|Check-Date|Check-Valid-Until|Languages|Retries)\b' \
  >"$root/etc/apt/apt.conf.d/99host" || true

# Certificates that this machine trusts and Debian does not: each in a file of its own under /usr/local, where
# update-ca-certificates finds it again whenever ca-certificates is installed or upgraded.
awk -v out="$root/usr/local/share/ca-certificates/host" '
  /BEGIN CERTIFICATE/ { pem = "" }
  { pem = pem $0 "\n" }
  /END CERTIFICATE/ { if (NR == FNR) known[pem]; else if (!(pem in known)) { n++; printf "%s", pem > (out n ".crt") } }
' "$root/etc/ssl/certs/ca-certificates.crt" /etc/ssl/certs/ca-certificates.crt
chroot "$root" update-ca-certificates >/dev/null 2>&1 || fail "update-ca-certificates failed in the new base"

find "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/var/log -type f -delete
rm -f "$root"/etc/resolv.conf "$root"/etc/hostname
tar -C "$root" --numeric-owner -c . |
  docker import --change 'CMD ["/bin/bash"]' --message "Debian bookworm, minbase" - "$tag" >/dev/null
echo "$tag made: $(docker image inspect --format '{{.Size}}' "$tag" | awk '{ printf "%.0f MB", $1 / 1e6 }')"

#!/bin/sh
# Run inside the new root file system, by the Dockerfile and by `cargo xtask image` alike.
set -eu

# The user that every session runs as. Its home is set per session, inside /work.
groupadd --gid 1000 agent
useradd --uid 1000 --gid 1000 --home-dir /work --no-create-home --shell /bin/bash agent

# A tmpfs comes up with the owner and mode of the directory below it, whatever its options say.
install -d -o 1000 -g 1000 -m 0700 /work

# The container is the environment: a second fence around the system's Python only stops `pip install`.
printf '[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\n' > /etc/pip.conf
ln -sf python3 /usr/bin/python

# A workspace may belong to a uid of an earlier container; git would refuse it.
git config --system safe.directory '*'
git config --system init.defaultBranch main

rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

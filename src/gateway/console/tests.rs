use super::*;
use crate::tests::{Running, start_with};
use reqwest::header::HeaderMap as Answered;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

async fn console(folder: &Path) -> Running {
    let folder = folder.to_owned();
    // With a token, so that the files prove to need none.
    start_with(&["s3cret"], move |settings| settings.console.dir = Some(folder)).await
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("dist/assets")).unwrap();
    fs::write(folder.path().join("secret.txt"), "not of the console").unwrap();
    fs::write(folder.path().join("dist/index.html"), "<!doctype html><title>Turnwheel</title>").unwrap();
    fs::write(folder.path().join("dist/assets/app.js"), "export const words = [];\n".repeat(200)).unwrap();
    fs::write(folder.path().join("dist/assets/dot.png"), vec![7; 4_096]).unwrap();
    folder
}

fn header<'h>(headers: &'h Answered, name: &str) -> &'h str {
    headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[tokio::test]
async fn the_files_in_the_program_are_served_without_a_token() {
    let gateway = start_with(&["s3cret"], |_| {}).await;
    let page = gateway.get("/console/", &[]).await;
    assert_eq!(page.status(), 200);
    assert_eq!(header(page.headers(), "content-type"), "text/html; charset=utf-8");
    assert!(page.text().await.unwrap().contains("<title>Turnwheel"));
    assert_eq!(gateway.get("/console/manifest.json", &[]).await.status(), 200);
}

#[tokio::test]
async fn the_root_leads_to_the_console_and_its_routes_to_its_page() {
    let folder = folder();
    let gateway = console(&folder.path().join("dist")).await;
    for path in ["/", "/console"] {
        let answer = gateway.get(path, &[]).await;
        assert_eq!((answer.status().as_u16(), header(answer.headers(), "location")), (307, "/console/"), "{path}");
    }
    for path in ["/console/", "/console/sessions", "/console/sessions/s1/turns/m-1", "/console/a/"] {
        let answer = gateway.get(path, &[]).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert!(answer.text().await.unwrap().contains("<title>"), "{path}");
    }
    let missing = gateway.get("/console/assets/gone.js", &[]).await;
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.json::<serde_json::Value>().await.unwrap()["error"]["code"], "unknown_path");
}

#[tokio::test]
async fn every_file_says_what_it_is_and_what_the_page_may_do() {
    let folder = folder();
    let gateway = console(&folder.path().join("dist")).await;
    for (path, kind) in [
        ("/console/", "text/html; charset=utf-8"),
        ("/console/assets/app.js", "text/javascript; charset=utf-8"),
        ("/console/assets/dot.png", "image/png"),
    ] {
        let answer = gateway.get(path, &[]).await;
        let headers = answer.headers();
        assert_eq!(header(headers, "content-type"), kind);
        assert_eq!(header(headers, "cache-control"), "no-cache");
        assert_eq!(header(headers, "x-content-type-options"), "nosniff");
        assert_eq!(header(headers, "referrer-policy"), "no-referrer");
        let policy = header(headers, "content-security-policy");
        assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[tokio::test]
async fn a_file_that_the_browser_has_is_not_sent_again() {
    let folder = folder();
    let gateway = console(&folder.path().join("dist")).await;
    for asked in [&[][..], &[("accept-encoding", "gzip")][..]] {
        let first = gateway.get("/console/assets/app.js", asked).await;
        let tag = header(first.headers(), "etag").to_owned();
        let again = |tag: &str| [asked, &[("if-none-match", tag)]].concat().iter().map(own).collect::<Vec<_>>();
        let repeated = gateway.get("/console/assets/app.js", &borrowed(&again(&format!("\"x\", W/{tag}")))).await;
        assert_eq!(repeated.status(), 304);
        assert_eq!(header(repeated.headers(), "etag"), tag);
        assert!(header(repeated.headers(), "content-security-policy").contains("'self'"));
        assert!(repeated.bytes().await.unwrap().is_empty());
        fs::write(folder.path().join("dist/assets/app.js"), format!("// {tag}\n").repeat(50)).unwrap();
        let changed = gateway.get("/console/assets/app.js", &borrowed(&again(&tag))).await;
        assert_eq!(changed.status(), 200);
        assert_ne!(header(changed.headers(), "etag"), tag);
    }
}

fn own(pair: &(&str, &str)) -> (String, String) {
    (pair.0.to_owned(), pair.1.to_owned())
}

fn borrowed(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
    pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test]
async fn texts_are_compressed_for_clients_that_accept_it() {
    let folder = folder();
    let gateway = console(&folder.path().join("dist")).await;
    let plain = gateway.get("/console/assets/app.js", &[]).await;
    let plain_tag = header(plain.headers(), "etag").to_owned();
    let content = plain.bytes().await.unwrap();
    let zipped = gateway.get("/console/assets/app.js", &[("accept-encoding", "br, gzip;q=0.5")]).await;
    assert_eq!(header(zipped.headers(), "content-encoding"), "gzip");
    assert_eq!(header(zipped.headers(), "vary"), "accept-encoding");
    assert_ne!(header(zipped.headers(), "etag"), plain_tag, "the encodings have different bytes");
    let zipped = zipped.bytes().await.unwrap();
    assert!(zipped.len() < content.len() / 4, "{} of {}", zipped.len(), content.len());
    let mut unzipped = Vec::new();
    let mut decoder = libflate::gzip::Decoder::new(zipped.as_ref()).unwrap();
    std::io::Read::read_to_end(&mut decoder, &mut unzipped).unwrap();
    assert_eq!(unzipped, content);
    for (path, accepted) in
        [("/console/assets/app.js", "gzip;q=0, br"), ("/console/", "gzip"), ("/console/assets/dot.png", "gzip")]
    {
        let answer = gateway.get(path, &[("accept-encoding", accepted)]).await;
        assert_eq!(header(answer.headers(), "content-encoding"), "", "{path} {accepted}");
    }
}

#[tokio::test]
async fn no_path_leaves_the_folder() {
    let folder = folder();
    let files = Files::new(Some(&folder.path().join("dist")));
    let outside = folder.path().join("secret.txt");
    for path in
        ["../secret.txt", "assets/../../secret.txt", "./../secret.txt", outside.to_str().unwrap(), "..\\secret.txt"]
    {
        assert!(files.find(path).await.is_none(), "{path}");
    }
    assert!(files.find("assets/app.js").await.is_some());
    let gateway = console(&folder.path().join("dist")).await;
    for path in ["/console/..%2Fsecret.txt", "/console/%2e%2e/secret.txt", "/console/assets/..%2f..%2fsecret.txt"] {
        let answer = gateway.get(path, &[]).await;
        assert!(!answer.text().await.unwrap().contains("not of the console"), "{path}");
    }
}

/// The sources from which the console is built, below the folder `console`. The types of the API are none: they are
/// generated from `openapi.json`, and git does not keep them.
fn sources(console: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![console.join("src")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() { open.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    for entry in fs::read_dir(console).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let listed = ["index.html", "package.json", "package-lock.json", "vite.config.ts"].contains(&name.as_str());
        if listed || (name.starts_with("tsconfig") && name.ends_with(".json")) {
            found.push(console.join(name));
        }
    }
    found.retain(|path| !path.ends_with("src/api/schema.d.ts"));
    found
}

/// The digest of the sources: for each file in the order of its path below `console`, the path, NUL and the bytes.
fn digest(console: &Path) -> String {
    let relative = |path: &Path| path.strip_prefix(console).unwrap().to_str().unwrap().replace('\\', "/");
    let mut paths: Vec<String> = sources(console).iter().map(|path| relative(path)).collect();
    paths.sort();
    let mut hash = Sha256::new();
    for path in paths {
        hash.update(path.as_bytes());
        hash.update([0]);
        hash.update(fs::read(console.join(&path)).unwrap());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_build_is_that_of_its_sources() {
    let console = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    let manifest = fs::read(console.join("dist/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["sources"], digest(&console), "build the console again: `npm run build` in the folder console");
}

//! The console's files: those that are compiled into the program, or those of a folder. Each has a tag from its content
//! and, if that is smaller, a compressed form, which is made once.

use axum::body::Bytes;
use include_dir::{Dir, include_dir};
use libflate::gzip::Encoder;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};
use tracing::warn;

static COMPILED_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../console/dist");

/// The compiled-in files by their paths.
static BUILT: LazyLock<HashMap<String, File>> = LazyLock::new(|| {
    let mut files = HashMap::new();
    collect(&COMPILED_IN, &mut files);
    files
});

/// Smaller files are not compressed: they fit into one packet.
const MIN_COMPRESSED: usize = 1_024;

/// Where the files are. Cheap to clone.
#[derive(Clone, Debug)]
pub(in crate::console) enum Place {
    Program,
    Folder(Arc<Path>),
}

/// All files of the console. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Files(Place);

impl Files {
    /// The files of `folder`, or those in the program.
    pub(crate) fn new(folder: Option<&Path>) -> Self {
        Self(folder.map_or(Place::Program, |folder| Place::Folder(folder.into())))
    }

    /// The file at this path below `/console/`.
    pub(super) async fn find(&self, path: &str) -> Option<File> {
        match &self.0 {
            Place::Program => BUILT.get(path).cloned(),
            Place::Folder(folder) => read(folder, path).await,
        }
    }
}

/// A file with its content. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct File(Arc<FileContent>);

#[derive(Debug)]
struct FileContent {
    media_type: &'static str,
    /// Hex digest of the content.
    digest: String,
    bytes: Bytes,
    /// `None` where compression saves nothing.
    gzip: OnceLock<Option<Bytes>>,
}

impl File {
    fn new(path: &str, bytes: Bytes) -> Self {
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            // Writing to a text cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self(Arc::new(FileContent { media_type: media_type(path), digest, bytes, gzip: OnceLock::new() }))
    }

    pub(super) fn media_type(&self) -> &'static str {
        self.0.media_type
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.0.bytes.clone()
    }

    /// The tag of the content in one of its two encodings.
    pub(super) fn etag(&self, zipped: bool) -> String {
        format!("\"{}{}\"", self.0.digest, if zipped { "-gzip" } else { "" })
    }

    /// The compressed content, if it is smaller.
    pub(super) fn gzip(&self) -> Option<Bytes> {
        let FileContent { media_type, bytes, gzip, .. } = self.0.as_ref();
        let is_text = !media_type.starts_with("image/") && !media_type.starts_with("font/") || *media_type == SVG;
        let zipped = || zip(bytes).filter(|zipped| zipped.len() < bytes.len());
        gzip.get_or_init(|| if is_text && bytes.len() >= MIN_COMPRESSED { zipped() } else { None }).clone()
    }
}

/// Compresses into memory, which does not fail.
fn zip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = Encoder::new(Vec::with_capacity(bytes.len() / 3)).ok()?;
    encoder.write_all(bytes).ok()?;
    encoder.finish().into_result().ok().map(Bytes::from)
}

fn collect(dir: &'static Dir<'static>, files: &mut HashMap<String, File>) {
    for file in dir.files() {
        let path = file.path().to_string_lossy().replace('\\', "/");
        let found = File::new(&path, Bytes::from_static(file.contents()));
        files.insert(path, found);
    }
    dir.dirs().for_each(|dir| collect(dir, files));
}

/// Reads a file of the folder; `None` if there is none, or if the path leaves the folder.
async fn read(folder: &Path, path: &str) -> Option<File> {
    let relative = PathBuf::from(path);
    let stays = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !stays || path.contains('\\') {
        return None;
    }
    let place = folder.join(relative);
    match tokio::fs::read(&place).await {
        Ok(bytes) => Some(File::new(path, bytes.into())),
        Err(error) => {
            warn!("console.dir: {} cannot be read: {error}", place.display());
            None
        }
    }
}

const SVG: &str = "image/svg+xml";

/// The media type by the ending of the name.
fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => SVG,
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}

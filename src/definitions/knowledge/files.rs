//! Reads the files that an agent's `knowledge.files` names. They are read next to the agent's file, by `agents apply`,
//! `dev` or a program that applies agents. Workers get the texts from the store.

use super::source::{MAX_TEXT, Origin, Source, SourceError, check_name};
use crate::agent::AgentRecord;
use crate::agent::load::{self, AgentError};
use crate::agent::validate::{INSIDE, PatternProblem, check_pattern};
use crate::document::{Finding, Positions};
use base::clock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use types::agent::AgentConfig;

const EXTENSIONS: [&str; 3] = ["md", "markdown", "txt"];

/// A text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedText {
    /// Path relative to the agent's file, such as `kb/returns.md`.
    pub name: String,
    /// The content.
    pub text: String,
}

/// Reads the knowledge files of the agent that was read from `file`; patterns are relative to its folder. Returns the
/// texts sorted by name, and warnings about probable mistakes. A file that cannot be used is an error.
pub fn read(file: &Path, agent: &AgentRecord) -> Result<(Vec<NamedText>, Vec<Finding>), AgentError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut reading = KnowledgeReader { folder, texts: BTreeMap::new(), errors: Vec::new(), warnings: Vec::new() };
    for (path, pattern) in patterns(&agent.config) {
        reading.pattern(&path, pattern, &agent.config.id);
    }
    let KnowledgeReader { texts, mut errors, mut warnings, .. } = reading;
    if let Some(text) = agent.source.as_ref().filter(|_| !errors.is_empty() || !warnings.is_empty()) {
        let positions = Positions::read(text);
        errors.iter_mut().chain(&mut warnings).for_each(|finding| finding.at = positions.position_of(&finding.path));
    }
    if !errors.is_empty() {
        return Err(AgentError::Invalid(errors));
    }
    Ok((texts.into_iter().map(|(name, text)| NamedText { name, text }).collect(), warnings))
}

/// The files and problems found so far.
struct KnowledgeReader<'a> {
    folder: &'a Path,
    texts: BTreeMap<String, String>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

impl KnowledgeReader<'_> {
    fn pattern(&mut self, path: &str, pattern: &str, agent_id: &str) {
        let finding =
            |problem: String, hint: &str| Finding { at: None, path: path.to_owned(), problem, hint: hint.into() };
        let files = match matching(self.folder, pattern) {
            Ok(files) => files,
            Err((problem, hint)) => return self.errors.push(finding(problem, hint)),
        };
        if files.is_empty() {
            let problem = format!("`{pattern}` matches no file in {}", shown(self.folder));
            self.warnings.push(finding(problem, "a pattern is relative to the agent's file"));
        }
        for file in files {
            let name = name_of(self.folder, &file);
            if self.texts.contains_key(&name) {
                continue;
            }
            match text_of(&file, &name, agent_id) {
                Ok(text) => drop(self.texts.insert(name, text)),
                Err(error) => self.errors.push(finding(format!("{}: {error}", file.display()), "")),
            }
        }
    }
}

/// The knowledge files of a compiled-in agent.
pub fn builtin(agent: &AgentConfig) -> Vec<NamedText> {
    let mut texts = BTreeMap::new();
    for (_, pattern) in patterns(agent) {
        let Ok(pattern) = glob::Pattern::new(pattern) else { continue };
        let named =
            |(name, text): &(String, &'static str)| pattern.matches(name) && text_is_usable(name, text, &agent.id);
        texts.extend(load::builtin_texts().into_iter().filter(named));
    }
    texts.into_iter().map(|(name, text)| NamedText { name, text: text.to_owned() }).collect()
}

/// Reads one file that an operator adds. Its name is the path as given.
pub fn read_one(path: &Path, agent_id: &str) -> Result<NamedText, SourceError> {
    let name = path.components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect::<PathBuf>();
    // An absolute path would reveal the layout of this machine, so only the file's name is kept.
    let name = if name.is_absolute() { name.file_name().map(PathBuf::from).unwrap_or_default() } else { name };
    let name = slashed(&name);
    let text = text_of(path, &name, agent_id)?;
    Ok(NamedText { name, text })
}

/// All files that the agent's patterns match now. Used to watch them for changes.
pub fn paths(file: &Path, agent: &AgentConfig) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    patterns(agent).filter_map(|(_, pattern)| matching(folder, pattern).ok()).flatten().collect()
}

fn patterns(agent: &AgentConfig) -> impl Iterator<Item = (String, &str)> {
    let files = agent.knowledge.iter().flat_map(|knowledge| &knowledge.files).enumerate();
    files.map(|(at, pattern)| (format!("knowledge.files[{at}]"), pattern.as_str()))
}

/// The files that a pattern matches, sorted by name. Folders are skipped. A link to a file elsewhere is an error.
fn matching(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, PatternProblem> {
    check_pattern(pattern)?;
    let escaped = glob::Pattern::escape(&folder.to_string_lossy());
    let whole = Path::new(&escaped).join(pattern);
    let found = glob::glob(&whole.to_string_lossy()).map_err(|error| {
        (format!("`{pattern}` is not a pattern: {}", error.msg), "`*`, `?`, `**` and `[…]` have a meaning in it")
    })?;
    let files: Vec<PathBuf> = found.flatten().filter(|path| path.is_file()).collect();
    // An unreadable path is an error when it is read.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = real(if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    match files.iter().find(|file| !real(file).starts_with(&home)) {
        Some(file) => Err((format!("{} is a link that leaves the folder of the agent's file", file.display()), INSIDE)),
        None => Ok(files),
    }
}

fn text_of(file: &Path, name: &str, agent_id: &str) -> Result<String, SourceError> {
    let read = |error: std::io::Error| SourceError::Read(error.into());
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    if !EXTENSIONS.contains(&extension.as_str()) {
        return Err(SourceError::Kind);
    }
    check_name(name)?;
    let length = std::fs::metadata(file).map_err(read)?.len();
    if length > MAX_TEXT as u64 {
        return Err(SourceError::TooLarge(length));
    }
    let bytes = std::fs::read(file).map_err(read)?;
    let text = String::from_utf8(bytes).map_err(|error| SourceError::Encoding(error.utf8_error().valid_up_to()))?;
    let text = text.trim_start_matches('\u{feff}').to_owned();
    Source::new(agent_id, name, &text, Origin::AgentFile, clock::now())?;
    Ok(text)
}

fn text_is_usable(name: &str, text: &str, agent_id: &str) -> bool {
    Source::new(agent_id, name, text, Origin::AgentFile, clock::now()).is_ok()
}

fn name_of(folder: &Path, file: &Path) -> String {
    slashed(file.strip_prefix(folder).unwrap_or(file))
}

fn slashed(path: &Path) -> String {
    path.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn shown(folder: &Path) -> String {
    if folder.as_os_str().is_empty() { ".".to_owned() } else { folder.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agent(files: &str) -> AgentRecord {
        let text = format!("id: shop\nsop: x\nknowledge:\n  files: {files}\n");
        load::text(Path::new("shop.yaml"), &text).unwrap()
    }

    #[test]
    fn patterns_are_relative_to_the_agent_s_file_and_findings_name_place_and_file() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a [b]");
        std::fs::create_dir_all(dir.join("kb/more")).unwrap();
        let put = |name: &str, content: &[u8]| std::fs::write(dir.join(name), content).unwrap();
        put("kb/b.md", "\u{feff}# 退货\n七天".as_bytes());
        put("kb/a.txt", b"text");
        put("kb/more/c.markdown", b"more");
        let file = dir.join("shop.yaml");
        let (texts, warnings) = read(&file, &agent("[\"kb/*\", \"kb/**/*.markdown\", kb/b.md, \"no/*.md\"]")).unwrap();
        let names: Vec<&str> = texts.iter().map(|text| text.name.as_str()).collect();
        assert_eq!(names, ["kb/a.txt", "kb/b.md", "kb/more/c.markdown"]);
        assert_eq!(texts[1].text, "# 退货\n七天");
        assert_eq!(warnings.len(), 1);
        let warning = warnings[0].to_string();
        assert!(warning.starts_with("line 4, column") && warning.contains("`no/*.md` matches no file"), "{warning}");

        let elsewhere = folder.path().join("elsewhere.md");
        std::fs::write(&elsewhere, "of the operator").unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.join("link.md")).unwrap();
        std::os::unix::fs::symlink(folder.path(), dir.join("all")).unwrap();
        std::os::unix::fs::symlink(dir.join("kb/b.md"), dir.join("inside.md")).unwrap();
        let absolute = elsewhere.display().to_string();
        for pattern in
            [&absolute, "/etc/*.txt", "../*.md", "kb/../../elsewhere.md", "link.md", "*.md", "all/*.md", "C:/x.md"]
        {
            let refused = read(&file, &agent(&json!([pattern]).to_string())).unwrap_err().to_string();
            let reason = ["is an absolute path", "leaves the folder of the agent's file"];
            assert!(
                refused.starts_with("line 4, column") && reason.iter().any(|part| refused.contains(part)),
                "{refused}"
            );
            assert!(!paths(&file, &agent(&json!([pattern]).to_string()).config).contains(&elsewhere), "{pattern}");
        }
        assert_eq!(read(&file, &agent("[inside.md]")).unwrap().0.len(), 1);

        put("kb/d.pdf", b"x");
        put("kb/e.md", b" \n");
        put("kb/gbk.txt", &[0xc4, 0xe3]);
        let errors = read(&file, &agent("[\"kb/*\", \"kb/***\"]")).unwrap_err().to_string();
        for parts in [
            ["line 4", "knowledge.files[0]", "d.pdf", ".md"],
            ["line 4", "knowledge.files[0]", "e.md", "no text"],
            ["line 4", "knowledge.files[0]", "gbk.txt", "UTF-8"],
            ["line 4", "knowledge.files[1]", "`kb/***`", "not a pattern"],
        ] {
            assert!(errors.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?}: {errors}");
        }
    }
}

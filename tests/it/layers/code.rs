//! The paths that Rust code names. Comments, texts and test modules do not count.

/// Words and signs of the code. `::` is one of them.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_whitespace() {
            first.len_utf8()
        } else if let Some(length) = skipped(rest, found.last().copied()) {
            length
        } else {
            let word = rest.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { word.max(first.len_utf8()) };
            found.push(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
    found
}

/// Length of the comment, text, character or lifetime at the beginning of `rest`.
fn skipped(rest: &str, before: Option<&str>) -> Option<usize> {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return Some(until("\n", 0));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('"') {
        // A text after `r` and `#`s has no escapes.
        let raw = before.is_some_and(|word| ["r", "br", "cr"].contains(&word));
        return Some(if raw { until("\"", 1) } else { quoted(rest, '"') });
    }
    if rest.starts_with('#') && before.is_some_and(|word| ["r", "br", "cr"].contains(&word)) {
        let signs = rest.chars().take_while(|sign| *sign == '#').count();
        let end = format!("\"{}", "#".repeat(signs));
        return rest[signs..].starts_with('"').then(|| until(&end, signs + 1));
    }
    if rest.starts_with('\'') {
        let mut after = rest.chars().skip(1);
        let is_character = after.next() == Some('\\') || after.next() == Some('\'');
        return Some(if is_character { quoted(rest, '\'') } else { 1 });
    }
    None
}

/// Length of a text in quotation marks, with its escapes.
fn quoted(rest: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, sign) in rest.char_indices().skip(1) {
        match sign {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if sign == mark => return at + sign.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

/// Length of a block comment, which may contain others.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The paths that the code of a module names, from the crate's root.
pub fn paths(module: &[String], code: &str) -> Vec<Vec<String>> {
    let tokens = tokens(code);
    let mut reader = Reader { tokens: &tokens, at: 0, found: Vec::new() };
    // The module of each open brace.
    let mut open: Vec<Vec<String>> = Vec::new();
    let mut module = module.to_vec();
    while let Some(token) = reader.peek(0) {
        let next = reader.peek(1);
        match token {
            "#" if reader.is_test_module() => reader.skip_test_module(),
            "mod" if reader.peek(2) == Some("{") => {
                open.push(module.clone());
                module.push(next.unwrap_or_default().to_owned());
                reader.at += 3;
            }
            "{" => {
                open.push(module.clone());
                reader.at += 1;
            }
            "}" => {
                module = open.pop().unwrap_or(module);
                reader.at += 1;
            }
            // `pub(in crate::turn)` names who may use an item.
            "in" if reader.at > 1 && reader.tokens[reader.at - 2..reader.at] == ["pub", "("] => {
                reader.at += 1;
                while reader.peek(0).is_some_and(|token| token != ")") {
                    reader.at += 1;
                }
            }
            "crate" | "self" | "super" if next == Some("::") => reader.path(Vec::new(), &module),
            _ => reader.at += 1,
        }
    }
    reader.found
}

struct Reader<'t> {
    tokens: &'t [&'t str],
    at: usize,
    found: Vec<Vec<String>>,
}

impl<'t> Reader<'t> {
    fn peek(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn is_test_module(&self) -> bool {
        self.tokens[self.at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]", "mod"])
    }

    fn skip_test_module(&mut self) {
        // The attribute, `mod` and the name.
        self.at += 9;
        let mut depth = 0;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            match token {
                "{" => depth += 1,
                "}" => depth -= 1,
                ";" if depth == 0 => return,
                _ => continue,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Reads a path, or the tree of paths of a `use`, that begins below `prefix`.
    fn path(&mut self, mut prefix: Vec<String>, module: &[String]) {
        loop {
            match self.peek(0) {
                Some("crate") => prefix = Vec::new(),
                Some("self") if prefix.is_empty() && self.peek(1) == Some("::") => prefix = module.to_vec(),
                // Within braces, the path before them.
                Some("self" | "*") => {}
                Some("super") => {
                    if prefix.is_empty() {
                        prefix = module.to_vec();
                    }
                    prefix.pop();
                }
                Some("{") => return self.list(&prefix, module),
                Some(word) if word.starts_with(|sign: char| sign.is_alphanumeric() || sign == '_') => {
                    prefix.push(word.to_owned());
                }
                // The type arguments after `::` are read as paths of their own.
                _ => break,
            }
            self.at += 1;
            if self.peek(0) != Some("::") {
                break;
            }
            self.at += 1;
        }
        self.found.push(prefix);
    }

    /// Reads the list in braces of a `use`.
    fn list(&mut self, prefix: &[String], module: &[String]) {
        self.at += 1;
        while let Some(token) = self.peek(0) {
            match token {
                "}" => {
                    self.at += 1;
                    return;
                }
                "," => self.at += 1,
                "as" => self.at += 2,
                _ => self.path(prefix.to_vec(), module),
            }
        }
    }
}

//! The forms of tests: this test fails when unit tests, what tests share, or what stands in for a real part is written in another
//! place or under another kind of name than CONTRIBUTING.md says, when a crate compares the status of a condition by hand, or when a
//! file that implements a format or rule of others does not name its source.
//!
//! It reads the sources. What it is not: a judge of what tests check.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

use std::path::{Path, PathBuf};

/// The length up to which a file holds its own tests.
const LONGEST: usize = 400;

/// Words for what stands in for a real part, besides `Fake` and `fake`.
const OTHER_WORDS: [&str; 4] = ["standin", "mock", "stub", "dummy"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The folders of all crates.
fn crates() -> Vec<PathBuf> {
    let all: Vec<_> = entries(&root().join("crates")).into_iter().chain([root().join("xtask")]).collect();
    assert!(
        all.len() > 15 && all.iter().all(|folder| folder.join("src").is_dir()),
        "some sources are not found"
    );
    all
}

/// All Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let inside = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => Some(path).filter(|path| path.extension().is_some_and(|e| e == "rs")).into_iter().collect(),
    };
    entries(folder).into_iter().flat_map(inside).collect()
}

/// What is wrong with a file of `src`. `path` begins at the folder `src`.
fn wrong(path: &str, text: &str) -> Vec<String> {
    let mut wrong = vec![];
    let mut say = |what: &str| wrong.push(format!("{path}: {what}"));
    let name = path.rsplit('/').next().unwrap();
    if name.ends_with("_tests.rs") || name.starts_with("test_") {
        say("unit tests that are not in the file that they test are in its folder, in tests.rs");
    }
    if path.ends_with("tests/mod.rs") {
        say("the tests are tests.rs; only their parts are in the folder tests");
    }
    if text.contains("#[path") {
        say("a file of src is where its module is looked for, without a path attribute");
    }
    for module in test_modules(text) {
        if module != "tests" && !module.starts_with("fake_") {
            say(&format!(
                "the module {module} is compiled for tests: it is called tests, or fake_ and what it stands in for"
            ));
        }
    }
    if ["tests.rs", "tests"].iter().all(|part| !path.split('/').any(|p| p == *part)) {
        let first = text.lines().position(is_test).unwrap_or(usize::MAX);
        let inline = text.lines().position(|line| line.trim_start().ends_with("mod tests {"));
        match inline {
            None if first < usize::MAX => say("a test is in a module `tests`"),
            Some(at) if first < at => say("a test is in the module `tests` at the end of the file"),
            Some(_) if text.lines().count() > LONGEST => {
                say(&format!(
                    "with its tests it is longer than {LONGEST} lines: they go to tests.rs in its folder"
                ));
            }
            _ => {}
        }
    }
    wrong
}

fn is_test(line: &str) -> bool {
    let line = line.trim_start();
    line == "#[test]" || line.starts_with("#[tokio::test")
}

/// The modules that are compiled for tests only.
fn test_modules(text: &str) -> Vec<&str> {
    let items = text.split("#[cfg(test)]\n").skip(1);
    let heads = items.filter_map(|item| item.lines().map(str::trim).find(|line| !line.starts_with('#')));
    let modules = heads.filter_map(|head| {
        let head = head.strip_prefix("pub(crate) ").or(head.strip_prefix("pub(super) ")).unwrap_or(head);
        head.strip_prefix("mod ")
    });
    modules.filter_map(|module| module.split([';', ' ']).next()).collect()
}

/// The words of a source, without its comments and its texts in quotes, that name something that stands in by another word.
fn other_words(text: &str) -> Vec<String> {
    let code = text.lines().map(|line| line.split("//").next().unwrap());
    let outside_quotes = code.flat_map(|line| line.split('"').step_by(2));
    let words = outside_quotes.flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| is_other(word)).map(str::to_owned).collect()
}

/// Whether a name is made with one of [`OTHER_WORDS`]: `StandIn`, `crio_standin`, `MockServer`. A test's name may say what stands
/// in the way of what.
fn is_other(name: &str) -> bool {
    let mut spaced = String::new();
    for c in name.chars() {
        if c.is_uppercase() || c == '_' {
            spaced.push(' ');
        }
        spaced.extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let two = words.windows(2).any(|pair| pair == ["stand", "in"]) && words.len() < 5;
    two || words.iter().any(|word| OTHER_WORDS.contains(word))
}

/// The lines of a source, without its unit tests, that compare a text with the status of a condition.
fn compared_statuses(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let forms = ["True", "False", "Unknown"].map(|status| {
        let quoted = format!("\"{status}\"");
        let compared = ["== ", "!= ", "== Some(", "!= Some("].map(|operator| format!("{operator}{quoted}"));
        (quoted, compared)
    });
    let compares = |line: &&str| {
        let line = line.trim_start();
        let arm = |quoted: &str| {
            let pattern = line.split(" =>").next().filter(|p| p.len() < line.len()).unwrap_or_default();
            pattern.trim_start_matches("Some(").starts_with(quoted)
        };
        !line.starts_with("//")
            && forms.iter().any(|(quoted, compared)| arm(quoted) || compared.iter().any(|c| line.contains(c)))
    };
    code.lines().filter(compares).collect()
}

/// Files that implement a format or a rule of others.
const SOURCED: &str = include_str!("sources.txt");

/// Whether the head of a file names a source: an address, or a man page with its section.
fn names_source(text: &str) -> bool {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    head.flat_map(str::split_whitespace).any(|word| {
        let page = word.trim_start_matches('(').split_once('(').filter(|(name, _)| !name.is_empty());
        let section = page.and_then(|(_, rest)| rest.split_once(')')).map(|(section, _)| section);
        word.contains("https://") || section.is_some_and(|s| ["1", "2", "3", "4", "5", "7", "8"].contains(&s))
    })
}

#[test]
fn what_implements_a_format_or_a_rule_of_others_names_its_source() {
    let (root, mut listed) = (root(), 0);
    for path in SOURCED.lines().filter(|line| !line.starts_with('#')) {
        listed += 1;
        let Ok(text) = std::fs::read_to_string(root.join(path)) else {
            panic!("{path} is listed in xtask/tests/sources.txt, and there is no such file");
        };
        assert!(names_source(&text), "{path}: its head has to name its source: an address, or a man page");
    }
    assert!(listed > 200);
    for (text, has) in [
        ("//! Names. Source: <https://www.rfc-editor.org/rfc/rfc2397>.\n", true),
        ("//! The lines of sysctl.d(5), which the kernel reads.\n", true),
        ("//! As sshd(8) says (sshd_config(5)):\n", true),
        ("//! The keys (sshd(8)).\n", true),
        ("//! What it does (see `plan`), and f(x).\n\n/// <https://example.com>, crypt(5)\n", false),
        ("/// crypt(5)\n", false),
    ] {
        assert_eq!(names_source(text), has, "{text}");
    }
}

#[test]
fn the_status_of_a_condition_is_compared_in_one_place() {
    let root = root();
    let mut found = vec![];
    let crates = crates();
    for folder in crates.iter().filter(|folder| !folder.ends_with("api")) {
        for file in sources(&folder.join("src")) {
            let path = file.strip_prefix(&root).unwrap();
            if path.iter().any(|part| part == "tests" || part == "tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            found.extend(compared_statuses(&text).iter().map(|line| format!("{}: {line}", path.display())));
        }
    }
    assert_eq!(
        found,
        Vec::<String>::new(),
        "api::conditions::StatusCondition has is_true, is_false, is_unknown"
    );
}

#[test]
fn unit_tests_have_one_form() {
    let root = root();
    let mut found = vec![];
    for folder in crates() {
        for file in sources(&folder.join("src")) {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            found.extend(wrong(&path, &std::fs::read_to_string(&file).unwrap()));
        }
    }
    assert_eq!(found, Vec::<String>::new(), "see CONTRIBUTING.md");
}

#[test]
fn what_programs_of_tests_share_is_in_their_folder_common() {
    for folder in crates() {
        for path in entries(&folder.join("tests")).into_iter().filter(|path| path.is_dir()) {
            let is_program = path.join("main.rs").is_file();
            assert!(
                is_program || path.ends_with("common") || sources(&path).is_empty(),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn what_stands_in_for_a_real_part_is_called_a_fake() {
    let root = root();
    for folder in crates() {
        for file in sources(&folder).iter().filter(|file| !file.ends_with("xtask/tests/forms.rs")) {
            let path = file.strip_prefix(&root).unwrap().display();
            let stem = file.file_stem().unwrap().to_str().unwrap();
            assert!(!is_other(stem), "{path}: it is called fake_ and what it stands in for");
            let words = other_words(&std::fs::read_to_string(file).unwrap());
            assert_eq!(
                words,
                Vec::<String>::new(),
                "{path}: these are called Fake and what they stand in for"
            );
        }
    }
}

#[test]
fn each_other_form_is_seen() {
    let long = |text: &str| format!("{}{text}", "fn f() {}\n".repeat(LONGEST));
    let inline = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {}\n}\n";
    for (path, text, seen) in [
        ("src/a.rs", inline.to_owned(), false),
        ("src/a.rs", long(inline), true),
        ("src/a.rs", long("#[cfg(test)]\nmod tests;\n"), false),
        ("src/a/tests.rs", long("#[test]\nfn t() {}\n"), false),
        ("src/a/tests/part.rs", "#[test]\nfn t() {}\n".to_owned(), false),
        ("src/a.rs", "#[cfg(test)]\npub(crate) mod fake_server;\n".to_owned(), false),
        ("src/a.rs", "#[cfg(test)]\n#[expect(x)]\nmod trial;\n".to_owned(), true),
        ("src/a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\n".to_owned(), true),
        ("src/a_tests.rs", "#[test]\nfn t() {}\n".to_owned(), true),
        ("src/a/tests/mod.rs", String::new(), true),
        ("src/a.rs", "#[tokio::test]\nasync fn t() {}\n".to_owned(), true),
        ("src/a.rs", format!("#[test]\nfn t() {{}}\n{inline}"), true),
    ] {
        assert_eq!(!wrong(path, &text).is_empty(), seen, "{path}: {text:?}");
    }
    for (text, seen) in [
        ("struct GrubStandIn;", true),
        ("mod crio_standin;", true),
        ("fn stand_in() {}", true),
        ("MockServer::start()", true),
        ("struct FakeOs;", false),
        ("let standing = 1;", false),
        ("fn fields_stand_in_the_reference_order() {}", false),
        ("// A mock\nlet text = \"a stub\";", false),
    ] {
        assert_eq!(!other_words(text).is_empty(), seen, "{text}");
    }
    for (text, seen) in [
        ("all.iter().any(|c| c.status == \"True\")", true),
        ("    c.status != \"False\"", true),
        ("c[\"status\"].as_str() == Some(\"Unknown\")", true),
        ("match status {\n    \"True\" => 1,", true),
        ("    Some(\"True\" | \"Unknown\") => 1,", true),
        ("    Self::Pulled => Progress::of(\"True\"),", false),
        ("let word = if of == state { \"True\" } else { \"False\" };", false),
        ("// c.status == \"True\"", false),
        ("fn f() {}\n#[cfg(test)]\nmod tests {\n    fn t() -> bool { status == \"True\" }", false),
    ] {
        assert_eq!(!compared_statuses(text).is_empty(), seen, "{text}");
    }
}

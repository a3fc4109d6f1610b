//! Writes a JSON value as the YAML text that the go-yaml library (v2.4) writes for it, byte for byte.
//!
//! Rendered names are hashes of that text, so it is part of the interface: every implementation must compute the same
//! names. A bootstrap's output is written with it too.
//!
//! What it is not: a YAML library (see `api::formats::yaml`).
//!
//! Sources: <https://github.com/go-yaml/yaml/tree/v2.4.0> and <https://yaml.org/spec/1.1/>.

mod scalar;

use scalar::{ScalarTraits, base60, escape, printable, resolves};
use serde_json::Value;
use std::cmp::Ordering;

/// go-yaml folds scalars at the first space after this column.
const WIDTH: usize = 80;

/// The text, with a newline at its end.
pub(crate) fn emit(value: &Value) -> String {
    // Line breaks and indentation take somewhat more space than quotes and braces. Growing a text of a megabyte would
    // copy it often.
    let json = crate::size::of_value(value);
    let out = String::with_capacity(json + json / 8);
    let mut e = Emitter { out, column: 0, piece: usize::MAX, sink: |_: &str| {} };
    e.whole(|e| e.node(value, 0, Place::Root));
    e.out
}

/// Passes the text of a map to `sink`, in pieces. The fields must be in the order in which they are written.
pub(crate) fn emit_fields(fields: &[(&str, &Value)], sink: impl FnMut(&str)) {
    let mut e = Emitter { out: String::new(), column: 0, piece: PIECE, sink };
    e.whole(|e| {
        for (i, (key, value)) in fields.iter().enumerate() {
            e.entry(i, key, value, 0, Place::Root);
        }
    });
    (e.sink)(&e.out);
}

/// How much text is collected before it is passed on.
const PIECE: usize = 16 * 1024;

struct Emitter<F> {
    out: String,
    column: usize,
    /// How much text is collected before it is passed on.
    piece: usize,
    sink: F,
}

/// The position of a node, which decides about the first line break and the indentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    AfterKey,
    AfterDash,
}

impl<F: FnMut(&str)> Emitter<F> {
    /// Writes everything, with a line break at the end.
    fn whole(&mut self, write: impl FnOnce(&mut Self)) {
        write(self);
        if self.column != 0 {
            self.put('\n');
        }
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column = if c == '\n' { 0 } else { self.column + 1 };
    }

    fn push(&mut self, s: &str) {
        if self.out.len() > self.piece {
            (self.sink)(&self.out);
            self.out.clear();
        }
        self.out.push_str(s);
    }

    /// Writes ASCII text without line breaks, so that its end need not be searched.
    fn word(&mut self, s: &str) {
        self.push(s);
        self.column += s.len();
    }

    fn text(&mut self, s: &str) {
        self.push(s);
        let width = |s: &str| if s.is_ascii() { s.len() } else { s.chars().count() };
        self.column = match s.rsplit_once('\n') {
            Some((_, last)) => width(last),
            None => self.column + width(s),
        };
    }

    /// Starts a line at a column.
    fn line(&mut self, indent: usize) {
        if self.column != 0 {
            self.put('\n');
        }
        (0..indent).for_each(|_| self.put(' '));
    }

    /// Writes a node whose lines start at `indent`.
    fn node(&mut self, value: &Value, indent: usize, place: Place) {
        let space = if place == Place::Root { "" } else { " " };
        match value {
            Value::Object(map) if map.is_empty() => self.text(&format!("{space}{{}}")),
            Value::Array(items) if items.is_empty() => self.text(&format!("{space}[]")),
            Value::Object(map) => {
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_by(|a, b| natural(a, b));
                let indent = if place == Place::AfterKey { indent + 2 } else { indent };
                for (i, key) in keys.into_iter().enumerate() {
                    if let Some(v) = map.get(key) {
                        self.entry(i, key, v, indent, place);
                    }
                }
            }
            Value::Array(items) => {
                for (i, v) in items.iter().enumerate() {
                    self.item(i, indent, place);
                    self.put('-');
                    let inner =
                        if matches!(v, Value::Object(_) | Value::Array(_)) { indent + 2 } else { indent };
                    self.node(v, inner, Place::AfterDash);
                }
            }
            Value::String(s) => {
                self.text(space);
                self.scalar(s, indent, false);
            }
            Value::Null => self.text(&format!("{space}null")),
            Value::Bool(b) => self.text(&format!("{space}{b}")),
            Value::Number(n) => self.text(&format!("{space}{n}")),
        }
    }

    /// Writes one entry of a map.
    fn entry(&mut self, index: usize, key: &str, value: &Value, indent: usize, place: Place) {
        self.item(index, indent, place);
        self.scalar(key, indent, true);
        self.put(':');
        self.node(value, indent, Place::AfterKey);
    }

    /// Moves to the start of the next entry of a list or map; the first entry after a dash stays on its line.
    fn item(&mut self, index: usize, indent: usize, place: Place) {
        if index == 0 && place == Place::AfterDash {
            self.put(' ');
        } else {
            self.line(indent);
        }
    }

    fn scalar(&mut self, s: &str, indent: usize, key: bool) {
        let indent = indent + 2;
        if let Some(traits) = ScalarTraits::of_one_word(s) {
            return match resolves(s) || base60(s) {
                true => self.double(s, indent, !key),
                false if traits.plain() => self.word(s),
                false => self.single(s, indent, !key),
            };
        }
        let traits = ScalarTraits::of_text(s);
        if s.contains('\n') && !key {
            if traits.literal() { self.literal(s, indent) } else { self.double(s, indent, !key) }
        } else if resolves(s) || base60(s) || traits.special || traits.space_before_break {
            self.double(s, indent, !key);
        } else if traits.plain() {
            self.plain(s, indent, !key);
        } else {
            self.single(s, indent, !key);
        }
    }

    fn plain(&mut self, s: &str, indent: usize, fold: bool) {
        if !fold || self.column + s.len() <= WIDTH || !s.contains(' ') {
            return self.text(s);
        }
        let chars: Vec<char> = s.chars().collect();
        let mut spaces = false;
        for (i, &c) in chars.iter().enumerate() {
            if c == ' ' && fold && !spaces && self.column > WIDTH && chars.get(i + 1) != Some(&' ') {
                self.line(indent);
            } else {
                self.put(c);
            }
            spaces = c == ' ';
        }
    }

    fn single(&mut self, s: &str, indent: usize, fold: bool) {
        let chars: Vec<char> = s.chars().collect();
        let mut spaces = false;
        self.put('\'');
        for (i, &c) in chars.iter().enumerate() {
            let inner = i > 0 && i + 1 < chars.len();
            let wide = fold && !spaces && self.column > WIDTH;
            if c == ' ' && wide && inner && chars.get(i + 1) != Some(&' ') {
                self.line(indent);
            } else {
                self.put(c);
                if c == '\'' {
                    self.put('\'');
                }
            }
            spaces = c == ' ';
        }
        self.put('\'');
    }

    fn double(&mut self, s: &str, indent: usize, fold: bool) {
        let chars: Vec<char> = s.chars().collect();
        let mut spaces = false;
        self.put('"');
        for (i, &c) in chars.iter().enumerate() {
            let inner = i > 0 && i + 1 < chars.len();
            if !printable(c) || matches!(c, '\n' | '"' | '\\' | '\u{2028}' | '\u{2029}') {
                self.text(&escape(c));
                spaces = false;
            } else if c == ' ' {
                if fold && !spaces && self.column > WIDTH && inner {
                    self.line(indent);
                    if chars.get(i + 1) == Some(&' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                spaces = true;
            } else {
                self.put(c);
                spaces = false;
            }
        }
        self.put('"');
    }

    fn literal(&mut self, s: &str, indent: usize) {
        self.put('|');
        if s.starts_with([' ', '\n']) {
            self.put('2');
        }
        let body = match s.strip_suffix('\n') {
            None => {
                self.put('-');
                s
            }
            Some(body) => {
                if body.is_empty() || body.ends_with('\n') {
                    self.put('+');
                }
                body
            }
        };
        for line in body.split('\n') {
            self.put('\n');
            if !line.is_empty() {
                (0..indent).for_each(|_| self.put(' '));
                self.text(line);
            }
        }
        if s.ends_with('\n') {
            self.put('\n');
        }
    }
}

/// The order of map keys: runs of digits by their number, letters after everything else.
fn natural(a: &str, b: &str) -> Ordering {
    let letters = |s: &str| s.bytes().all(|c| c.is_ascii_alphabetic());
    if letters(a) && letters(b) {
        return a.cmp(b);
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = a.iter().zip(&b).position(|(x, y)| x != y) else { return a.len().cmp(&b.len()) };
    let (Some(&x), Some(&y)) = (a.get(i), b.get(i)) else { return Ordering::Equal };
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let inside = (x == '0' || y == '0')
        && a.get(..i).unwrap_or_default().iter().rev().take_while(|c| c.is_ascii_digit()).any(|c| *c != '0');
    let run = |s: &[char]| -> (u64, usize) {
        let digits = s.get(i..).unwrap_or_default().iter().map_while(|c| c.to_digit(10));
        digits.fold((u64::from(inside), 0), |(n, len), d| {
            (n.wrapping_mul(10).wrapping_add(u64::from(d)), len + 1)
        })
    };
    run(&a).cmp(&run(&b)).then(x.cmp(&y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_word_is_judged_as_a_text_is() {
        let word = |s: &str| ScalarTraits::of_one_word(s).map(|t| (t.plain(), t.literal()));
        for s in [
            "a",
            "-",
            "?",
            "-a",
            "---a",
            "...",
            "a:",
            "a:b",
            "a#b",
            "#a",
            "'a",
            "data:,a%20b",
            "~",
            "=",
            "<<",
            "!x",
        ] {
            let text = ScalarTraits::of_text(s);
            assert_eq!(word(s), Some((text.plain(), text.literal())), "{s}");
        }
        for s in ["", "a b", "a\n", "é", "a\tb", "\u{7f}"] {
            assert_eq!(word(s), None, "{s:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_as_the_same(
            text in r#"[ -~\n\t\r\u{a0}\u{e9}\u{2028}\u{1f600}]{0,40}"#,
            word in "[!-~]{1,90}",
            long in "([a-z:#'\"-]{1,9} ){0,30}",
        ) {
            for s in [text, word, long] {
                let value = json!({"a": [{"b": &s, "c": 1}, &s, [&s]], "d": true, "e": null});
                let written = emit(&value);
                prop_assert_eq!(api::formats::yaml::from_str::<Value>(&written).unwrap(), value, "{}", written);
            }
        }

        #[test]
        fn every_word_is_judged_as_a_text_is(s in "[!-~]{1,5}") {
            let (word, text) = (ScalarTraits::of_one_word(&s).unwrap(), ScalarTraits::of_text(&s));
            prop_assert_eq!((word.plain(), word.literal()), (text.plain(), text.literal()));
        }
    }
}

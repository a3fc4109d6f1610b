//! Writes a JSON value as the YAML text that the go-yaml library (v2.4) writes for it, byte for byte.
//!
//! Rendered names are hashes of that text, so it is part of the interface: another implementation computes the same
//! names. A bootstrap's output is written with it too. What it is not: a YAML library; for everything else see
//! `api::yaml`.

use serde_json::Value;
use std::cmp::Ordering;

/// go-yaml folds scalars at the first space after this column.
const WIDTH: usize = 80;

/// The text, with a newline at its end.
pub(crate) fn emit(value: &Value) -> String {
    // Line breaks and indentation take somewhat more than quotes and braces: growing a text of a megabyte copies it often.
    let json = crate::size::of_value(value);
    let out = String::with_capacity(json + json / 8);
    let mut e = Emitter { out, column: 0, piece: usize::MAX, sink: |_: &str| {} };
    e.whole(|e| e.node(value, 0, Place::Root));
    e.out
}

/// Hands the text of a map to `sink`, in pieces. The fields must stand in the order that they are written in.
pub(crate) fn emit_fields(fields: &[(&str, &Value)], sink: impl FnMut(&str)) {
    let mut e = Emitter { out: String::new(), column: 0, piece: PIECE, sink };
    e.whole(|e| {
        for (i, (key, value)) in fields.iter().enumerate() {
            e.entry(i, key, value, 0, Place::Root);
        }
    });
    (e.sink)(&e.out);
}

/// So much is gathered before it is handed on.
const PIECE: usize = 16 * 1024;

struct Emitter<F> {
    out: String,
    column: usize,
    /// How much is gathered before it is handed on.
    piece: usize,
    sink: F,
}

/// Where a node stands: it decides about the first line break and about indentation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    AfterKey,
    AfterDash,
}

impl<F: FnMut(&str)> Emitter<F> {
    /// Writes all, with a line break at its end.
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

    /// Writes what is ASCII and has no line break: its end need not be looked for.
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

    /// Goes to where the next entry of a list or map starts; the first one after a dash stays on its line.
    fn item(&mut self, index: usize, indent: usize, place: Place) {
        if index == 0 && place == Place::AfterDash {
            self.put(' ');
        } else {
            self.line(indent);
        }
    }

    fn scalar(&mut self, s: &str, indent: usize, key: bool) {
        let indent = indent + 2;
        if let Some(traits) = Traits::of_one_word(s) {
            return match resolves(s) || base60(s) {
                true => self.double(s, indent, !key),
                false if traits.plain() => self.word(s),
                false => self.single(s, indent, !key),
            };
        }
        let traits = Traits::of_text(s);
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

/// What a string's characters say about the ways to write it.
#[derive(Default)]
struct Traits {
    special: bool,
    indicators: bool,
    leading_space: bool,
    trailing_space: bool,
    space_before_break: bool,
}

impl Traits {
    /// For visible ASCII without blanks, as paths and most data URLs are: only its ends matter.
    fn of_one_word(s: &str) -> Option<Self> {
        // In pieces, so that the compiler compares many bytes at once.
        let visible = |piece: &[u8]| piece.iter().fold(true, |all, b| all & (b'!'..=b'~').contains(b));
        if !s.as_bytes().chunks(64).all(visible) {
            return None;
        }
        let first = s.bytes().next()?;
        let indicators = s.starts_with("---")
            || s.starts_with("...")
            || s.ends_with(':')
            || b"#,[]{}&*!|>'\"%@`".contains(&first)
            || matches!(s, "?" | "-");
        Some(Self { indicators, ..Self::default() })
    }

    fn of_text(s: &str) -> Self {
        let blank = |c: Option<char>| matches!(c, None | Some(' ' | '\t' | '\n' | '\r'));
        let mut t = Self {
            indicators: s.starts_with("---") || s.starts_with("..."),
            leading_space: s.starts_with(' '),
            trailing_space: s.ends_with(' '),
            ..Self::default()
        };
        let mut chars = s.chars().peekable();
        let (mut i, mut before) = (0_usize, None);
        while let Some(c) = chars.next() {
            let next = chars.peek().copied();
            let next_blank = blank(next);
            let after_blank = i > 0 && blank(before);
            t.special |= !printable(c);
            t.space_before_break |= c == ' ' && next == Some('\n');
            t.indicators |= match c {
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`'
                    if i == 0 =>
                {
                    true
                }
                '?' | '-' if i == 0 => next_blank,
                ':' => next_blank,
                '#' => after_blank,
                _ => false,
            };
            (i, before) = (i + 1, Some(c));
        }
        t
    }

    fn plain(&self) -> bool {
        !(self.special
            || self.indicators
            || self.leading_space
            || self.trailing_space
            || self.space_before_break)
    }

    fn literal(&self) -> bool {
        !(self.special || self.trailing_space || self.space_before_break)
    }
}

fn printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

fn escape(c: char) -> String {
    match c {
        '\0' => "\\0".to_owned(),
        '\u{7}' => "\\a".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\t' => "\\t".to_owned(),
        '\n' => "\\n".to_owned(),
        '\u{b}' => "\\v".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\r' => "\\r".to_owned(),
        '\u{1b}' => "\\e".to_owned(),
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\u{85}' => "\\N".to_owned(),
        '\u{a0}' => "\\_".to_owned(),
        '\u{2028}' => "\\L".to_owned(),
        '\u{2029}' => "\\P".to_owned(),
        c if u32::from(c) <= 0xff => format!("\\x{:02X}", u32::from(c)),
        c if u32::from(c) <= 0xffff => format!("\\u{:04X}", u32::from(c)),
        c => format!("\\U{:08X}", u32::from(c)),
    }
}

/// Would the plain text be read as something else than a string (YAML 1.1)?
fn resolves(s: &str) -> bool {
    let Some(first) = s.bytes().next() else { return true };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => word(s),
        b'.' => word(s) || s.parse::<f64>().is_ok(),
        b'+' | b'-' | b'0'..=b'9' => {
            let digits = s.replace('_', "");
            word(s) || timestamp(s) || integer(&digits) || float(&digits)
        }
        _ => false,
    }
}

fn word(s: &str) -> bool {
    const BOTH: [&str; 8] = ["y", "yes", "n", "no", "true", "false", "on", "off"];
    const LONGEST: usize = 5;
    if s.len() > LONGEST {
        return false;
    }
    if matches!(s, "~" | "null" | "Null" | "NULL") {
        return true;
    }
    let lower = s.to_ascii_lowercase();
    let capital =
        lower.get(..1).map(|c| format!("{}{}", c.to_ascii_uppercase(), lower.get(1..).unwrap_or_default()));
    let cased = s == lower || s == lower.to_ascii_uppercase() || Some(s) == capital.as_deref();
    if BOTH.contains(&lower.as_str()) {
        return cased;
    }
    let number = s.strip_prefix(['+', '-']).unwrap_or(s);
    matches!(s, ".nan" | ".NaN" | ".NAN") || matches!(number, ".inf" | ".Inf" | ".INF")
}

fn integer(s: &str) -> bool {
    let (negative, body) = match s.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, s.strip_prefix('+').unwrap_or(s)),
    };
    let lower = body.to_ascii_lowercase();
    let (radix, digits) = match lower.as_str() {
        l if l.starts_with("0x") => (16, l.get(2..)),
        l if l.starts_with("0o") => (8, l.get(2..)),
        l if l.starts_with("0b") => (2, l.get(2..)),
        l if l.len() > 1 && l.starts_with('0') => (8, l.get(1..)),
        l => (10, Some(l)),
    };
    let Some(digits) = digits.filter(|d| !d.is_empty() && !d.starts_with(['+', '-'])) else { return false };
    let unsigned = s.starts_with(['+', '-']);
    match u64::from_str_radix(digits, radix) {
        Ok(n) if negative => n <= i64::MIN.unsigned_abs(),
        Ok(n) if unsigned => n <= i64::MAX.unsigned_abs(),
        Ok(_) => true,
        Err(_) => false,
    }
}

fn float(s: &str) -> bool {
    let body = s.strip_prefix(['+', '-']).unwrap_or(s);
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(i) => (body.get(..i).unwrap_or_default(), body.get(i + 1..)),
        None => (body, None),
    };
    let digits = |d: &str| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit());
    let mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

/// `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`: a number to base 60 in YAML 1.1.
fn base60(s: &str) -> bool {
    let body = s.strip_prefix(['+', '-']).unwrap_or(s);
    if !body.starts_with(|c: char| c.is_ascii_digit()) {
        return false;
    }
    let whole = body.split_once('.').map_or(body, |(whole, fraction)| {
        if fraction.bytes().all(|b| b.is_ascii_digit() || b == b'_') { whole } else { "" }
    });
    let mut parts = whole.split(':');
    let head = parts.next().unwrap_or_default();
    let head_fits = head.starts_with(|c: char| c.is_ascii_digit())
        && head.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let mut any = false;
    for part in parts {
        any = true;
        let fits = match part.as_bytes() {
            [d] => d.is_ascii_digit(),
            [t, d] => (b'0'..=b'5').contains(t) && d.is_ascii_digit(),
            _ => false,
        };
        if !fits {
            return false;
        }
    }
    head_fits && any
}

/// `YYYY-M-D`, with a time after `T`, `t` or a space.
fn timestamp(s: &str) -> bool {
    let number = |d: &str, max_len: usize| -> Option<u32> {
        let fits = !d.is_empty() && d.len() <= max_len && d.bytes().all(|b| b.is_ascii_digit());
        fits.then(|| d.parse().ok()).flatten()
    };
    let (date, time) = match s.find(['T', 't', ' ']) {
        Some(i) => (s.get(..i).unwrap_or_default(), s.get(i..)),
        None => (s, None),
    };
    let mut parts = date.split('-');
    let (Some(y), Some(m), Some(d), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let (Some(year), Some(month), Some(day)) =
        (number(y, 4).filter(|_| y.len() == 4), number(m, 2), number(d, 2))
    else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return false,
    };
    if !(1..=days).contains(&day) {
        return false;
    }
    let Some(time) = time else { return true };
    let zoned = !time.starts_with(' ');
    let clock = time.get(1..).unwrap_or_default();
    let end = if zoned { clock.find(['Z', '+', '-']) } else { Some(clock.len()) };
    let Some(end) = end else { return false };
    let (clock, zone) = (clock.get(..end).unwrap_or_default(), clock.get(end..).unwrap_or_default());
    let zone_fits = match zone {
        "" => !zoned,
        "Z" => true,
        z => z.get(1..).and_then(|z| z.split_once(':')).is_some_and(|(h, m)| {
            h.len() == 2 && m.len() == 2 && number(h, 2).is_some() && number(m, 2).is_some()
        }),
    };
    let (clock, fraction) = clock.split_once('.').map_or((clock, "0"), |(c, f)| (c, f));
    let fields: Vec<Option<u32>> = clock.split(':').map(|f| number(f, 2)).collect();
    let clock_fits =
        matches!(fields.as_slice(), [Some(h), Some(m), Some(s)] if *h < 24 && *m < 60 && *s < 60);
    zone_fits && clock_fits && !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit())
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
        let word = |s: &str| Traits::of_one_word(s).map(|t| (t.plain(), t.literal()));
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
            let text = Traits::of_text(s);
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
                prop_assert_eq!(api::yaml::from_str::<Value>(&written).unwrap(), value, "{}", written);
            }
        }

        #[test]
        fn every_word_is_judged_as_a_text_is(s in "[!-~]{1,5}") {
            let (word, text) = (Traits::of_one_word(&s).unwrap(), Traits::of_text(&s));
            prop_assert_eq!((word.plain(), word.literal()), (text.plain(), text.literal()));
        }
    }
}

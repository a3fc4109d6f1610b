//! In which styles a string may be written as YAML, judged by its characters, and which plain strings YAML 1.1 reads as
//! something other than a string (<https://yaml.org/type/>).
//!
//! What it is not: the writing (see the parent module).

/// What a string's characters allow when it is written as YAML.
#[derive(Default)]
pub(super) struct ScalarTraits {
    pub(super) special: bool,
    pub(super) indicators: bool,
    pub(super) leading_space: bool,
    pub(super) trailing_space: bool,
    pub(super) space_before_break: bool,
}

impl ScalarTraits {
    /// For visible ASCII without spaces, such as paths and most data URLs: only the first and last characters matter.
    pub(super) fn of_one_word(s: &str) -> Option<Self> {
        // In chunks, so that the compiler compares many bytes at once.
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

    pub(super) fn of_text(s: &str) -> Self {
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

    pub(super) fn plain(&self) -> bool {
        !(self.special
            || self.indicators
            || self.leading_space
            || self.trailing_space
            || self.space_before_break)
    }

    pub(super) fn literal(&self) -> bool {
        !(self.special || self.trailing_space || self.space_before_break)
    }
}

pub(super) fn printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

pub(super) fn escape(c: char) -> String {
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

/// Whether the plain text would be read as something other than a string (YAML 1.1).
pub(super) fn resolves(s: &str) -> bool {
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
pub(super) fn base60(s: &str) -> bool {
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

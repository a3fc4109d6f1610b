//! Kubernetes quantities (`10Gi`, `1.5G`, `100m`, `1e3`) as bytes, and in the form in which Go programs write them, so
//! that equal settings make equal files, and so equal names. Pure.
//!
//! Rules: <https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity>.
//!
//! What it is not: arithmetic.

use serde_json::Value;

/// Longer numbers are no realistic size.
const DIGITS_MAX: usize = 18;
/// Bits of a step between binary suffixes.
const BINARY_STEP: i128 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `Ki`, `Mi` and so on.
    Binary,
    /// `k`, `M`, `m` and so on, or none.
    Decimal,
    /// `e3`.
    Exponent,
}

/// A quantity: `unscaled` times ten to the `scale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quantity {
    unscaled: i128,
    scale: i32,
    form: Form,
    /// The text as it was written, if that is the canonical form.
    text: Option<String>,
}

impl Quantity {
    /// Parses a number or a string.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(n) => Self::parse(&n.to_string()),
            Value::String(s) => Self::parse(s.trim()),
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = |s: &str| s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
        let (whole, rest) = rest.split_at_checked(end(rest))?;
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at_checked(end(rest))?,
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
        if digits.len() > DIGITS_MAX {
            return None;
        }
        let number: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let (form, exponent) = suffix_of(suffix)?;
        let places = i32::try_from(fraction.len()).ok()?;
        let (unscaled, scale) = match form {
            Form::Binary => (number << exponent, -places),
            Form::Decimal | Form::Exponent => (number, exponent - places),
        };
        let canonical = match form {
            Form::Binary => fraction.is_empty() && number & 7 != 0,
            _ => scale % 3 == 0 && !digits.ends_with("000") && !digits.is_empty() && !digits.starts_with('0'),
        };
        let unscaled = if negative { -unscaled } else { unscaled };
        Some(Self { unscaled, scale, form, text: canonical.then(|| text.to_owned()) })
    }

    /// Whole bytes, rounded away from zero; `None` if that does not fit into the number.
    pub(crate) fn bytes(&self) -> Option<i64> {
        let power = 10_i128.checked_pow(self.scale.unsigned_abs())?;
        let value = if self.scale >= 0 {
            self.unscaled.checked_mul(power)?
        } else {
            let (whole, rest) = (self.unscaled / power, self.unscaled % power);
            whole + rest.signum()
        };
        i64::try_from(value).ok()
    }

    /// The form that Go writes.
    pub(crate) fn canonical(&self) -> String {
        if self.unscaled == 0 {
            return "0".to_owned();
        }
        if let Some(text) = &self.text {
            return text.clone();
        }
        let (mut unscaled, mut scale) = (self.unscaled, self.scale);
        while unscaled % 10 == 0 {
            (unscaled, scale) = (unscaled / 10, scale + 1);
        }
        let whole = u32::try_from(scale).ok().and_then(|s| unscaled.checked_mul(10_i128.checked_pow(s)?));
        if let Some(mut number) = whole.filter(|n| self.form == Form::Binary && n.abs() >= BINARY_STEP) {
            let mut steps = 0;
            while number % BINARY_STEP == 0 && steps < BINARY.len() {
                (number, steps) = (number / BINARY_STEP, steps + 1);
            }
            let suffix = steps.checked_sub(1).and_then(|i| BINARY.get(i)).map_or("", |(s, _)| s);
            return format!("{number}{suffix}");
        }
        while scale % 3 != 0 {
            (unscaled, scale) = (unscaled * 10, scale - 1);
        }
        match (self.form, DECIMAL.iter().find(|(_, e)| *e == scale)) {
            (Form::Binary | Form::Decimal, Some((suffix, _))) => format!("{unscaled}{suffix}"),
            (_, _) if scale == 0 => unscaled.to_string(),
            _ => format!("{unscaled}e{scale}"),
        }
    }
}

const BINARY: [(&str, i32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

fn suffix_of(suffix: &str) -> Option<(Form, i32)> {
    let find = |list: &[(&str, i32)]| list.iter().find(|(s, _)| *s == suffix).map(|(_, e)| *e);
    if let Some(e) = find(&BINARY) {
        return Some((Form::Binary, e));
    }
    if let Some(e) = find(&DECIMAL) {
        return Some((Form::Decimal, e));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-9..=18).contains(&exponent).then_some((Form::Exponent, exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_read_and_written_as_go_does() {
        for (text, bytes, canonical) in [
            ("0", 0, "0"),
            ("0k", 0, "0"),
            ("10G", 10_000_000_000, "10G"),
            ("8Gi", 8 << 30, "8Gi"),
            ("10240Mi", 10 << 30, "10Gi"),
            ("1000M", 1_000_000_000, "1G"),
            ("1.5G", 1_500_000_000, "1500M"),
            ("1.5Gi", 3 << 29, "1536Mi"),
            ("0.5Gi", 1 << 29, "512Mi"),
            ("1.50G", 1_500_000_000, "1500M"),
            ("5000", 5000, "5k"),
            ("8193", 8193, "8193"),
            ("512Ki", 512 << 10, "512Ki"),
            ("1Ki", 1024, "1Ki"),
            ("100m", 1, "100m"),
            ("1e3", 1000, "1e3"),
            ("10e2", 1000, "1e3"),
            ("-5", -5, "-5"),
            ("+5", 5, "+5"),
            ("1.", 1, "1."),
            (".5", 1, "500m"),
            ("007", 7, "007"),
        ] {
            let q = Quantity::read(&json!(text)).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((q.bytes(), q.canonical().as_str()), (Some(bytes), canonical), "{text}");
        }
        assert_eq!(Quantity::read(&json!(20000)).and_then(|q| q.bytes()), Some(20000));
        for bad in [
            json!(""),
            json!("x"),
            json!("1X"),
            json!("1 G"),
            json!("--1"),
            json!("1e"),
            json!("1Gi5"),
            json!([]),
        ] {
            assert_eq!(Quantity::read(&bad), None, "{bad}");
        }
    }
}

//! The kernel arguments that an image of bootc brings along: TOML files in `/usr/lib/bootc/kargs.d`
//! (<https://bootc-dev.github.io/bootc/building/kernel-arguments.html>). Pure: texts in, arguments out.

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    kargs: Vec<String>,
    match_architectures: Option<Vec<String>>,
}

/// The arguments of one file on this architecture.
///
/// # Errors
/// It is not of the known form.
pub(super) fn of(text: &str, architecture: &str) -> Result<Vec<String>, String> {
    let File { kargs, match_architectures } = toml::from_str(text).map_err(|e| e.message().to_owned())?;
    let fits = match_architectures.is_none_or(|list| list.iter().any(|a| a == architecture));
    Ok(if fits { kargs } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_other_architectures_are_left_out() {
        let both = "kargs = [\"a=1,2\", \"b\"]\n";
        assert_eq!(of(both, "x86_64").unwrap(), ["a=1,2", "b"]);
        let one = "kargs = [\"console=ttyS0\"]\nmatch-architectures = [\"x86_64\"]\n";
        assert_eq!(of(one, "x86_64").unwrap(), ["console=ttyS0"]);
        assert!(of(one, "aarch64").unwrap().is_empty());
        for bad in ["kargs = \"a\"", "karg = [\"a\"]", "kargs = [\"a\"]\nmatch = []", "kargs"] {
            assert!(of(bad, "x86_64").is_err(), "{bad}");
        }
    }
}

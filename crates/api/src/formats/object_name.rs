//! Which texts can be the name of an object.
//!
//! What it is not: the narrower rules of single kinds, which their CRDs hold.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>.

/// The API server's limit, in characters.
const LONGEST: usize = 253;

/// Whether the API server takes this as `metadata.name`: a DNS subdomain by RFC 1123, in lower case.
/// Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>
///
/// ```
/// assert!(api::formats::object_name::is_valid("99-worker.sshd"));
/// assert!(!api::formats::object_name::is_valid("99_worker"));
/// assert!(!api::formats::object_name::is_valid("../worker"));
/// ```
pub fn is_valid(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.chars().all(|c| plain(c) || c == '-') && label.starts_with(plain) && label.ends_with(plain)
    };
    name.len() <= LONGEST && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::is_valid;

    #[test]
    fn names_are_subdomains_in_lower_case() {
        for good in ["a", "0", "a-b.c-d", "rendered-worker-0123", &"a".repeat(253)] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "-a", "a-", "a..b", "a.-b", "A", "a_b", "a/b", "ä", &"a".repeat(254)]
        {
            assert!(!is_valid(bad), "{bad}");
        }
    }
}

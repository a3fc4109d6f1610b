//! What a registry demands in `WWW-Authenticate` (RFC 9110, section 11.6.1): a bearer token from a token server, or a name and
//! a password. Pure.
//!
//! What it is not: the requests that follow.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1>
//! and <https://distribution.github.io/distribution/spec/auth/token/>.

/// What a registry demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token of this server.
    Bearer {
        /// The token server's URL.
        realm: String,
        /// Whom the token is for.
        service: String,
        /// What the token is to allow; empty: not said.
        scope: String,
    },
    /// Name and password with each request.
    Basic,
}

impl Challenge {
    /// The challenge to follow, of all headers: a token before a password. `None`: none that is known here.
    pub(crate) fn read<'h>(headers: impl Iterator<Item = &'h str>) -> Option<Self> {
        let mut basic = None;
        for (scheme, parameters) in headers.flat_map(challenges) {
            let value = |key: &str| {
                let found = parameters.iter().find(|(k, _)| k.eq_ignore_ascii_case(key));
                found.map(|(_, v)| v.clone()).unwrap_or_default()
            };
            if scheme.eq_ignore_ascii_case("bearer") && !value("realm").is_empty() {
                return Some(Self::Bearer {
                    realm: value("realm"),
                    service: value("service"),
                    scope: value("scope"),
                });
            }
            if scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Self::Basic);
            }
        }
        basic
    }
}

/// Each challenge of a header: its scheme, and its parameters.
fn challenges(header: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut all: Vec<(String, Vec<(String, String)>)> = vec![];
    for part in parts(header) {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (part.trim(), None),
        };
        // `Scheme key=value` begins a challenge, `key=value` goes on with it.
        let key = match name.split_once(char::is_whitespace) {
            Some((scheme, key)) => {
                all.push((scheme.to_owned(), vec![]));
                key.trim()
            }
            None if value.is_none() && !name.is_empty() => {
                all.push((name.to_owned(), vec![]));
                continue;
            }
            None => name,
        };
        if let (Some((_, parameters)), Some(value)) = (all.last_mut(), value) {
            parameters.push((key.to_owned(), unquoted(value)));
        }
    }
    all
}

/// The header's parts between commas that stand in no quotes.
fn parts(header: &str) -> Vec<String> {
    let (mut all, mut part, mut quoted, mut escaped) = (vec![], String::new(), false, false);
    for c in header.chars() {
        match c {
            ',' if !quoted => {
                all.push(std::mem::take(&mut part));
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = quoted && c == '\\' && !escaped;
        part.push(c);
    }
    all.push(part);
    all
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_preferred_and_quoted_commas_do_not_part() {
        let bearer = |realm: &str, service: &str, scope: &str| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.to_owned(),
                scope: scope.to_owned(),
            })
        };
        for (headers, want) in [
            (
                vec!["Bearer realm=\"https://a.io/token\",service=\"r\",scope=\"repository:a/b:pull,push\""],
                bearer("https://a.io/token", "r", "repository:a/b:pull,push"),
            ),
            (vec!["bearer realm=https://a.io/t , Service=r"], bearer("https://a.io/t", "r", "")),
            (vec!["Basic realm=\"x, y=z\""], Some(Challenge::Basic)),
            (vec!["Basic realm=x", "Bearer realm=\"r\""], bearer("r", "", "")),
            (vec!["Basic realm=\"x\", Bearer realm=\"a\\\"b\""], bearer("a\"b", "", "")),
            (vec!["Basic"], Some(Challenge::Basic)),
            (vec!["Negotiate"], None),
            (vec!["Bearer"], None),
            (vec![", ,= ,\""], None),
            (vec![], None),
        ] {
            assert_eq!(Challenge::read(headers.iter().copied()), want, "{headers:?}");
        }
    }
}

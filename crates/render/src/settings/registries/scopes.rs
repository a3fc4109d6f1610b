//! Scopes of registries: which lies inside which, and which are blocked and allowed in the end.
//!
//! The format is that of containers-registries.conf(5).
//!
//! What it is not: how they come to be blocked (see the parent module).

/// What is blocked and allowed, after making sure that the release itself can be pulled.
#[derive(Debug, Default)]
pub(crate) struct EffectiveScopes {
    pub(crate) registries: Option<Vec<String>>,
    pub(crate) policy: Option<Vec<String>>,
    pub(crate) allowed: Option<Vec<String>>,
}

pub(crate) fn check_scope(scope: &str) -> Result<(), &'static str> {
    if scope.trim().is_empty() || scope != scope.trim() {
        return Err("it is empty or has blanks around it");
    }
    match scope.strip_prefix("*.") {
        Some(rest) if rest.contains(['/', '@', ':', '*']) => Err("after *. only a host name can stand"),
        None if scope.contains('*') => Err("a * can stand only at the start, as *."),
        _ => Ok(()),
    }
}

/// Whether one scope lies inside another or equals it.
pub(crate) fn nested(sub: &str, scope: &str) -> bool {
    if sub == scope || sub.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/')) {
        return true;
    }
    let Some(rest) = scope.strip_prefix('*').filter(|r| r.starts_with('.')) else { return false };
    match sub.split_once(':') {
        Some((host, _)) => host.ends_with(rest) && !host.contains('/'),
        None => sub.split('/').next().unwrap_or_default().ends_with(rest),
    }
}

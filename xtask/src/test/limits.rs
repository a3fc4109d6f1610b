//! How long a run of the tests may take on two cores: what is printed beside the time that it took.
//!
//! It only reports: a slow run does not fail, because another computer, or another program on this one, may be the reason.

use super::Scope;
use std::time::Duration;

/// The limit of `--unit` when everything is built.
const UNIT: Duration = Duration::from_mins(2);
/// The limit of `--quick` when everything is built.
const QUICK: Duration = Duration::from_mins(10);
/// The limit of a run of everything when everything is built.
const ALL: Duration = Duration::from_mins(30);
/// The limit of a run of everything when nothing is built.
const ALL_COLD: Duration = Duration::from_mins(60);

/// The option that chooses this scope.
fn option(scope: Scope) -> &'static str {
    match scope {
        Scope::Unit => "--unit",
        Scope::Quick => "--quick",
        Scope::All => "all tests",
    }
}

/// The limit when everything is built.
fn warm(scope: Scope) -> Duration {
    match scope {
        Scope::Unit => UNIT,
        Scope::Quick => QUICK,
        Scope::All => ALL,
    }
}

/// What stands behind the time that a run took: the limit of its scope.
pub(super) fn beside(scope: Scope) -> String {
    let cold = match scope {
        Scope::Unit | Scope::Quick => String::new(),
        Scope::All => format!(", {} s when nothing is built", ALL_COLD.as_secs()),
    };
    format!(" (limit of {} on two cores: {} s{cold})", option(scope), warm(scope).as_secs())
}

/// What is said of a run that took longer.
pub(super) fn warning(scope: Scope, took: Duration) -> Option<String> {
    let (of, limit) = (option(scope), warm(scope));
    let over = took.checked_sub(limit).filter(|over| !over.is_zero())?.as_secs();
    let cold = match scope {
        Scope::Unit | Scope::Quick => "that is right only if much had to be built".to_owned(),
        Scope::All if took <= ALL_COLD => {
            format!("that is right only if much had to be built (then the limit is {} s)", ALL_COLD.as_secs())
        }
        Scope::All => format!("even with nothing built, {} s are the limit", ALL_COLD.as_secs()),
    };
    Some(format!("{over} s over the limit of {of} on two cores, {} s; {cold}", limit.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_compared_with_the_limit_of_its_scope() {
        for (scope, took, says) in [
            (Scope::Unit, 120, None),
            (
                Scope::Unit,
                130,
                Some("10 s over the limit of --unit on two cores, 120 s; that is right only if"),
            ),
            (Scope::Quick, 542, None),
            (Scope::Quick, 601, Some("1 s over the limit of --quick on two cores, 600 s")),
            (Scope::All, 1800, None),
            (
                Scope::All,
                2280,
                Some("480 s over the limit of all tests on two cores, 1800 s; that is right only if"),
            ),
            (
                Scope::All,
                3601,
                Some("1801 s over the limit of all tests on two cores, 1800 s; even with nothing built"),
            ),
        ] {
            let warning = warning(scope, Duration::from_secs(took));
            assert_eq!(warning.is_some(), says.is_some(), "{scope:?} {took}");
            assert!(warning.unwrap_or_default().starts_with(says.unwrap_or_default()), "{scope:?} {took}");
        }
        assert_eq!(beside(Scope::Quick), " (limit of --quick on two cores: 600 s)");
        assert_eq!(
            beside(Scope::All),
            " (limit of all tests on two cores: 1800 s, 3600 s when nothing is built)"
        );
    }
}

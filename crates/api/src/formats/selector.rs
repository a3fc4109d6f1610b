//! Label selectors: whether a set of labels matches. The semantics are those of `metav1.LabelSelector`, with one more
//! rule of this API: where a pool or a MachineConfig is selected, an absent or empty selector matches **nothing**.
//!
//! Source: <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>.

use crate::k8s::{LabelSelector, LabelSelectorRequirement};
use std::collections::BTreeMap;

/// A selector that cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator other than In, NotIn, Exists, DoesNotExist.
    #[error("matchExpressions[{index}].operator: {operator:?} is not In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Index in `matchExpressions`.
        index: usize,
        /// The operator that was written.
        operator: String,
    },
    /// `In` and `NotIn` need values, `Exists` and `DoesNotExist` must have none.
    #[error("matchExpressions[{index}].values: operator {operator} {rule}")]
    Values {
        /// Index in `matchExpressions`.
        index: usize,
        /// The operator.
        operator: String,
        /// What it demands.
        rule: &'static str,
    },
}

/// Whether the selector asks for nothing.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Does the selector pick an object with these labels? An absent or empty selector picks nothing.
///
/// # Errors
/// A selector that the API server would refuse, with its JSON path.
pub fn matches(
    selector: Option<&LabelSelector>,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<bool, SelectorError> {
    matches_by(selector, &|key| labels.and_then(|l| l.get(key)).map(String::as_str))
}

/// The same for labels that are stored in another form: `get` returns the value of a label.
///
/// # Errors
/// A selector that the API server would refuse, with its JSON path.
pub fn matches_by<'a>(
    selector: Option<&LabelSelector>,
    get: &dyn Fn(&str) -> Option<&'a str>,
) -> Result<bool, SelectorError> {
    let Some(selector) = selector.filter(|s| !is_empty(s)) else { return Ok(false) };
    let mut all = true;
    for (key, value) in selector.match_labels.iter().flatten() {
        all &= get(key) == Some(value.as_str());
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        all &= holds(index, requirement, get(&requirement.key))?;
    }
    Ok(all)
}

/// Whether a selector that [`matches`] refuses could be meant for an object with these labels. All readable parts must
/// match. If no part is readable, the object must have one of the labels that the selector names.
pub fn may_match<'a>(selector: &LabelSelector, get: &dyn Fn(&str) -> Option<&'a str>) -> bool {
    let (mut read, mut named) = (0, false);
    for (key, value) in selector.match_labels.iter().flatten() {
        if get(key) != Some(value.as_str()) {
            return false;
        }
        read += 1;
    }
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let have = get(&requirement.key);
        match holds(index, requirement, have) {
            Ok(true) => read += 1,
            Ok(false) => return false,
            Err(_) => named |= have.is_some(),
        }
    }
    read > 0 || named
}

fn holds(index: usize, r: &LabelSelectorRequirement, have: Option<&str>) -> Result<bool, SelectorError> {
    let values = r.values.as_deref().unwrap_or_default();
    let bad = |rule| Err(SelectorError::Values { index, operator: r.operator.clone(), rule });
    match r.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => bad("needs at least one value"),
        "Exists" | "DoesNotExist" if !values.is_empty() => bad("takes no values"),
        "In" => Ok(have.is_some_and(|v| values.iter().any(|x| x == v))),
        "NotIn" => Ok(have.is_none_or(|v| values.iter().all(|x| x != v))),
        "Exists" => Ok(have.is_some()),
        "DoesNotExist" => Ok(have.is_none()),
        other => Err(SelectorError::Operator { index, operator: other.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(yaml: &str) -> LabelSelector {
        crate::formats::yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn selectors_match_as_the_api_machinery_says() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let rows = [
            ("{}", false),
            ("matchLabels: {}", false),
            ("matchLabels: {a: '1'}", true),
            ("matchLabels: {a: '1', c: ''}", false),
            ("matchLabels: {b: ''}", true),
            ("matchExpressions: [{key: a, operator: In, values: ['1', '2']}]", true),
            ("matchExpressions: [{key: a, operator: NotIn, values: ['1']}]", false),
            ("matchExpressions: [{key: z, operator: NotIn, values: ['1']}]", true),
            ("matchExpressions: [{key: b, operator: Exists}]", true),
            ("matchExpressions: [{key: z, operator: DoesNotExist}]", true),
        ];
        for (yaml, want) in rows {
            assert_eq!(matches(Some(&selector(yaml)), Some(&labels)), Ok(want), "{yaml}");
        }
        assert_eq!(matches(None, Some(&labels)), Ok(false));
    }

    #[test]
    fn a_broken_selector_may_match_what_its_valid_parts_match() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let get = |key: &str| labels.get(key).map(String::as_str);
        let broken = "{key: KEY, operator: Equals, values: ['1']}";
        for (first, key, want) in [
            ("{key: a, operator: Exists}", "z", true),
            ("{key: z, operator: Exists}", "a", false),
            ("{key: a, operator: In, values: ['2']}", "a", false),
            ("{key: a, operator: In}", "z", true),
            ("{key: y, operator: In}", "z", false),
            ("{key: y, operator: In}", "a", true),
        ] {
            let yaml = format!("matchExpressions: [{first}, {}]", broken.replace("KEY", key));
            assert_eq!(may_match(&selector(&yaml), &get), want, "{yaml}");
        }
        let yaml = |value: &str| {
            format!("matchLabels: {{a: '{value}'}}\nmatchExpressions: [{{key: z, operator: In}}]")
        };
        assert!(may_match(&selector(&yaml("1")), &get) && !may_match(&selector(&yaml("2")), &get));
    }

    #[test]
    fn a_broken_selector_says_where() {
        let bad = selector("matchExpressions: [{key: a, operator: Equals, values: [x]}]");
        let error = matches(Some(&bad), None).unwrap_err().to_string();
        assert!(error.contains("matchExpressions[0].operator") && error.contains("Equals"), "{error}");
        let bad = selector("matchExpressions: [{key: a, operator: In}]");
        assert!(matches(Some(&bad), None).unwrap_err().to_string().contains("at least one value"));
    }
}

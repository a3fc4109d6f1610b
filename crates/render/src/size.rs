//! The size of an object as JSON: whether the API server can store it, and how long its text is. What it is not: the
//! writing.
//!
//! Source: <https://etcd.io/docs/v3.6/dev-guide/limit/>.

use api::v1::{MachineConfig, MachineConfigSpec};
use serde_json::Value;

/// The object's size as JSON. Its config, which is most of it, is counted without being written.
pub(crate) fn of(rendered: &MachineConfig) -> usize {
    let rest = MachineConfig {
        metadata: rendered.metadata.clone(),
        spec: MachineConfigSpec {
            os_image_url: rendered.spec.os_image_url.clone(),
            base_os_extensions_container_image: rendered.spec.base_os_extensions_container_image.clone(),
            config: None,
            kernel_arguments: rendered.spec.kernel_arguments.clone(),
            extensions: rendered.spec.extensions.clone(),
            fips: rendered.spec.fips,
            kernel_type: rendered.spec.kernel_type.clone(),
        },
        ..MachineConfig::default()
    };
    let config = rendered.spec.config.as_ref().map_or(0, |c| "\"config\":,".len() + of_value(c));
    serde_json::to_vec(&rest).map(|text| text.len() + config).unwrap_or(usize::MAX)
}

/// How many bytes a value takes as JSON without blanks.
pub(crate) fn of_value(value: &Value) -> usize {
    let text = |s: &str| {
        // Two bytes instead of one, or six. In chunks, so that the compiler handles many at once.
        let more = |b: u8| match b {
            b'"' | b'\\' | b'\n' | b'\t' | b'\r' | 0x8 | 0xc => 1,
            0..b' ' => 5,
            _ => 0_u8,
        };
        let escapes =
            |piece: &[u8]| usize::from(piece.iter().fold(0_u8, |sum, b| sum.wrapping_add(more(*b))));
        s.len() + "\"\"".len() + s.as_bytes().chunks(32).map(escapes).sum::<usize>()
    };
    match value {
        Value::Null | Value::Bool(true) => 4,
        Value::Bool(false) => 5,
        Value::Number(n) => n.to_string().len(),
        Value::String(s) => text(s),
        Value::Array(items) => {
            "[]".len() + items.len().saturating_sub(1) + items.iter().map(of_value).sum::<usize>()
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, v)| text(key) + ":".len() + of_value(v));
            "{}".len() + map.len().saturating_sub(1) + entries.sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_size_is_that_of_the_text(text in "\\PC{0,90}", raw in "[\u{0}-\u{30}\"\\\\]{0,90}", n in any::<i64>(), list in 0..3_usize) {
            let config = json!({"a": [text, raw, n, 0.5, true, false, null], &raw: {}, "list": vec![&text; list]});
            let mut mc = MachineConfig::new("x", MachineConfigSpec::default());
            prop_assert_eq!(of(&mc), serde_json::to_vec(&mc).unwrap().len());
            mc.spec.config = Some(config);
            mc.spec.kernel_arguments = Some(vec![text]);
            mc.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), raw)]));
            prop_assert_eq!(of(&mc), serde_json::to_vec(&mc).unwrap().len());
        }
    }
}

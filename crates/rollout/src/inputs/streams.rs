//! The OS image stream that a pool's status names: the one whose image the pool's rendered config has.
//!
//! What it is not: the choice of a pool's images, which is made when it is rendered.

use api::v1::MachineConfigPool;
use serde_json::Value;

/// The stream of a pool, from its rendered config's `osImageURL` and those of the MachineConfigs that it was rendered
/// from; a MachineConfig that cannot be read counts as having none. `None` if one of them chose the image itself, or if
/// no stream of the OSImageStream `cluster` has the image.
pub fn stream_of<'a>(
    pool: &MachineConfigPool,
    os_image_url: impl Fn(&str) -> Option<String>,
    streams: &'a Value,
) -> Option<&'a str> {
    let url_of = |name: &str| os_image_url(name).filter(|url| !url.is_empty());
    let sources = pool.spec.configuration.source.iter().flatten();
    let mut chosen = sources.filter_map(|source| url_of(source.name.as_deref()?));
    if chosen.next().is_some() {
        return None;
    }
    let url = url_of(&pool.spec.configuration.name)?;
    let all = streams.pointer("/status/availableStreams")?.as_array()?;
    let found = all.iter().find(|s| s.get("osImage").and_then(Value::as_str) == Some(&*url))?;
    found.get("name")?.as_str().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pools_stream_is_known_only_while_its_image_is_not_overridden() {
        let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "worker"},
            "spec": {"configuration": {"name": "r", "source": [{"name": "a"}, {"name": "gone"}]}}}))
        .unwrap();
        let streams = json!({"status": {"availableStreams": [
            {"name": "first", "osImage": "i1"}, {"name": "second", "osImage": "i2"}]}});
        let none = json!({});
        for (about, rendered, source, streams, want) in [
            ("86", "i2", "", &streams, Some("second")),
            ("87 no object of streams", "i2", "", &none, None),
            ("87 another image", "i3", "", &streams, None),
            ("87 no image", "", "", &streams, None),
            ("a MachineConfig names it", "i2", "i2", &streams, None),
        ] {
            let url = |name: &str| match name {
                "r" => Some(rendered.to_owned()),
                "a" => Some(source.to_owned()),
                _ => None,
            };
            assert_eq!(stream_of(&pool, url, streams), want, "{about}");
        }
    }
}

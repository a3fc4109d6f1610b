//! Tests of the kubelet's configuration as text: durations, and fields that are not set.

use super::*;

#[test]
fn durations_are_written_as_go_writes_them() {
    for (text, want) in [
        ("0s", "0s"),
        ("0", "0s"),
        ("5m", "5m0s"),
        ("90s", "1m30s"),
        ("1h", "1h0m0s"),
        ("1.5s", "1.5s"),
        ("300ms", "300ms"),
        ("1h2m3.25s", "1h2m3.25s"),
        ("24h", "24h0m0s"),
        ("15us", "15µs"),
    ] {
        assert_eq!(parse_duration(text).map(format_duration).as_deref(), Some(want), "{text}");
    }
    for bad in ["", "5", "m", "5x", "-5s", "99999999999999999h"] {
        assert_eq!(parse_duration(bad), None, "{bad}");
    }
}

#[test]
fn unset_fields_appear_with_their_zero_values() {
    let text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 7\n\
                nodeStatusReportFrequency: 5m\nmemorySwap: {swapBehavior: NoSwap}\n";
    let whole = |text: &str| Original { form: Form::Whole, text: text.to_owned() };
    let config = read("p", &whole(text)).unwrap();
    assert_eq!(config.get("maxPods"), Some(&json!(7)));
    assert_eq!(config.get("nodeStatusReportFrequency"), Some(&json!("5m0s")));
    assert_eq!(config.get("memorySwap"), Some(&json!({"swapBehavior": "NoSwap"})));
    assert_eq!(config.get("syncFrequency"), Some(&json!("0s")));
    assert!(read("p", &whole("kind: Pod\n")).is_err());
    let drop_in = Original { form: Form::DropIn, text: text.to_owned() };
    assert_eq!(read("p", &drop_in).unwrap().keys().filter(|k| *k != "kind" && *k != "apiVersion").count(), 3);
}

//! Any bytes: decoding never panics, and bytes that are made a data URL of come back.
#![no_main]

use ignition::data_url;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(data_url::decode(&data_url::encode(bytes)).as_deref(), Ok(bytes));
    assert_eq!(data_url::decode(&data_url::encode_base64("text/plain", bytes)).as_deref(), Ok(bytes));
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for url in [text.to_owned(), format!("data:{text}"), format!("data:;base64,{text}")] {
        match data_url::decode(&url) {
            Ok(decoded) => {
                assert!(data_url::is_data_url(&url));
                assert!(decoded.len() <= url.len(), "decoding never makes more of it");
            }
            // The content may be a secret.
            Err(e) => assert!(text.len() < 24 || !e.to_string().contains(text)),
        }
    }
});

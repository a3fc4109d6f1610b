//! Any bytes: reading, checking and writing never panic, and what was written reads back to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(parsed) = ignition::parse(bytes) else { return };
    let _ = ignition::validate(&parsed.config);
    let _ = ignition::lint(&parsed.config);
    for file in &parsed.config.storage.files {
        let _ = file.contents.decode();
    }
    let written = parsed.config.to_value().expect("a config that was read can be written");
    let back = ignition::parse_value(&written).expect("what was written can be read");
    assert_eq!(back.config, parsed.config);
    assert!(back.warnings.is_empty(), "{:?}", back.warnings);
    // A config laid over nothing, and nothing laid over a config, is that config.
    assert_eq!(ignition::merge(parsed.config.clone(), ignition::empty()), parsed.config);
    if ignition::validate(&parsed.config).is_ok() {
        assert_eq!(ignition::merge(ignition::empty(), parsed.config.clone()), parsed.config);
    }
});

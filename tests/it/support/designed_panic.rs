//! A panic that a test needs. It prints nothing, so that every printed panic is a failure.

use std::panic;
use std::sync::Once;

/// Payload of the panic.
const BY_DESIGN: &str = "panic by design";

/// Panics in the calling task.
pub fn designed_panic() -> ! {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some(BY_DESIGN) {
                print(panic);
            }
        }));
    });
    panic::panic_any(BY_DESIGN)
}

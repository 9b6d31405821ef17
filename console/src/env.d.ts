/// <reference types="vite/client" />
/// <reference types="svelte" />

/** Digest of the sources that this console is built from; `manifest.json` of the gateway has the one that it serves. */
declare const __SOURCES__: string

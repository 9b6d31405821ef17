export { get, post, put, remove, request, open, url, onSignedOut, type Schema, type Schemas } from './client'
export { ApiError, isAbort } from './error'
export { frames } from './sse'

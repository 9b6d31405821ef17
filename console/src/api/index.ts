export { get, post, put, remove, request, url, onSignedOut, type Schema, type Schemas } from './client'
export { ApiError, isAbort } from './error'

export { Listing, useListing, type ListingOptions, type Page } from './listing.svelte'
export { live, type FollowOptions, type Following } from './live.svelte'
export { Query, useQuery, type QueryOptions } from './query.svelte'
export type { EventType, Filter, LiveEvent, LiveState } from './protocol'

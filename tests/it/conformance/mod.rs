//! The contract of every backend. [`authoring`], [`drafts`], [`store`], [`timers`], [`catalog`], [`lanes`], [`runs`],
//! [`session_plans`], [`listings`], [`session_listing`], [`prompts`], [`values`], [`erasure`], [`expiry`],
//! [`versions`], [`queue`], [`event_log`] and [`dead_letters`] have the cases; each runs on a fresh backend.
//! [`embedded`] runs them in memory and on a file, `cluster` on NATS and MongoDB.

mod authoring;
pub mod catalog;
mod cluster;
mod dead_letters;
mod drafts;
mod embedded;
mod erasure;
mod event_log;
mod expiry;
pub mod kit;
mod lanes;
mod listings;
mod prompts;
mod queue;
pub mod runs;
mod session_listing;
pub mod session_plans;
mod store;
mod timers;
mod values;
mod versions;

/// Generates a test for each case. `open` returns a fresh `(Arc<dyn …>, guard)`.
macro_rules! cases {
    ($open:path, $suite:ident: $($case:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let (backend, _guard) = $open().await;
            $crate::conformance::$suite::$case(backend).await;
        })*
    };
}

/// All cases of a store.
macro_rules! store_suite {
    ($open:path) => {
        $crate::conformance::cases! { $open, lanes:
            a_new_session_is_created_as_asked
            a_held_lane_is_busy_and_remembers_the_later_job
            a_handled_job_is_handled_for_good
            an_expired_lease_is_taken_and_the_turn_resumed
            a_graceful_release_is_not_counted_as_an_attempt
            a_stale_release_does_nothing
            an_unpinned_turn_is_marked_without_a_configuration
            processing_is_announced_only_under_its_conditions
            a_commit_releases_the_lane_unless_a_later_job_is_known
            a_commit_without_a_change_only_moves_on
            a_fenced_commit_changes_nothing
            an_attempt_that_was_nobody_s_fault_is_taken_back
            a_commit_counts_once_and_only_while_the_lane_is_held
            renewing_keeps_leases_and_names_the_lost
            a_commit_of_a_lane_that_is_lost_leaves_nothing_on_record
            a_session_of_another_stream_is_set_back_where_it_was_found
            a_session_whose_stream_lost_its_end_is_set_back_within_it
            a_grant_tells_of_a_turn_whose_job_was_forgotten
            one_of_many_takes_the_lane
            lanes_with_work_and_no_holder_are_abandoned
            two_hundred_sessions_at_once_end_right
        }
        $crate::conformance::cases! { $open, store:
            a_commit_applies_every_field
            the_history_drops_what_the_caller_says
            recent_jobs_are_the_last_hundred
            closing_and_handoff_are_set_and_cleared
            a_flow_that_waits_is_set_and_cleared
            a_suspended_task_is_set_and_cleared
            a_stale_epoch_shows_no_status
            the_first_record_of_a_step_counts
            twenty_writers_of_one_step_adopt_the_same_output
            turns_whose_ids_begin_alike_are_kept_apart
            steps_of_the_commit_replace_what_was_recorded
            steps_of_a_fenced_commit_replace_nothing_of_the_next_holder
            an_outbox_is_kept_until_the_next_commit
            turns_are_listed_newest_first
            sessions_are_listed_last_changed_first_and_filtered
            idle_sessions_are_open_ready_chats
            tokens_of_a_session_and_of_days_count_once
            one_leads_until_it_resigns_or_its_lease_ends
        }
        $crate::conformance::cases! { $open, timers:
            timers_are_kept_removed_and_replaced
            timers_are_exchanged_and_the_others_stay
            due_timers_come_in_order_within_horizon_and_limit
        }
        $crate::conformance::cases! { $open, prompts:
            a_prompt_is_kept_with_the_first_record_of_its_step
        }
        $crate::conformance::cases! { $open, catalog:
            the_first_plan_stays
            an_applied_agent_is_seen_at_once_and_its_older_version_stays
            a_stored_version_never_changes
            sources_are_stored_listed_and_removed_by_agent
            the_first_secret_of_a_name_stays
        }
        $crate::conformance::cases! { $open, runs:
            a_registered_workflow_is_seen_at_once_and_its_older_version_stays
            a_version_is_kept_without_being_current
            a_run_is_put_once
            a_run_is_written_by_its_lane_s_last_holder
            a_run_ends_with_its_turn_s_commit
            runs_are_listed_newest_first_and_filtered
            lanes_of_runs_are_no_sessions
        }
        $crate::conformance::cases! { $open, session_plans:
            a_plan_is_found_by_its_id_and_listed_for_its_session_only
            a_changed_plan_keeps_its_state_and_its_older_version
            a_session_keeps_its_last_plans_and_those_that_run
            one_run_of_a_plan_begins_at_a_time
            a_plan_of_another_owner_is_not_replaced
        }
        $crate::conformance::cases! { $open, listings:
            turns_are_listed_by_start_then_commit_then_id
            steps_are_listed_by_key
            runs_of_a_lane_and_of_a_turn_are_found
            runs_are_listed_by_their_end
            processes_are_listed_by_start_then_id_until_they_depart
            a_session_whose_lane_is_open_is_not_idle
            handoffs_are_listed_by_their_wait_and_counted
            a_limit_of_zero_lists_nothing
            the_audit_trail_is_read_from_its_end_and_on_from_an_entry
        }
        $crate::conformance::cases! { $open, session_listing:
            sessions_are_found_by_channel_user_time_and_what_they_wait_for
            sessions_are_found_by_the_words_of_their_histories
            a_bounded_listing_goes_on_where_it_ended
        }
        $crate::conformance::cases! { $open, erasure:
            a_seized_lane_is_lost_to_its_holder_for_good
            a_placeholder_keeps_workers_out
            what_belongs_to_a_session_is_erased_and_nothing_else
            sessions_and_runs_of_a_user_are_found
            a_deleted_agent_is_gone_with_its_versions_and_knowledge
            a_deleted_workflow_is_gone_with_its_versions
        }
        $crate::conformance::cases! { $open, expiry:
            closed_conversations_are_found_and_seized_while_they_are_closed
            versions_that_nothing_uses_expire_with_their_plans
            a_version_that_is_used_or_stored_again_begins_its_grace_again
            versions_are_looked_at_page_by_page
            the_largest_sessions_come_first
        }
        $crate::conformance::cases! { $open, authoring:
            a_dialogue_is_created_once_with_its_session
            a_state_is_read_as_it_was_saved
            a_save_over_another_version_changes_nothing
            a_save_of_a_lane_that_is_lost_changes_nothing
            a_save_without_a_lease_waits_for_the_turn_s_end
            a_repeated_save_is_the_same_save
            dialogues_are_listed_last_changed_first_and_filtered
            a_deleted_session_takes_its_state_along
            a_deleted_artefact_is_named_by_no_state
            a_deletion_that_finds_nothing_leaves_the_dialogues_alone
        }
        $crate::conformance::cases! { $open, drafts:
            a_draft_is_a_version_that_nothing_lists_or_counts
            a_draft_goes_with_the_last_of_its_dialogues
            a_published_draft_is_an_ordinary_version
            a_publication_replaces_only_what_its_caller_has_seen
            a_deleted_definition_leaves_the_drafts_to_their_dialogues
            drafts_expire_only_without_their_dialogues
        }
        $crate::conformance::cases! { $open, versions:
            a_version_keeps_its_text_and_who_applied_it_last
            a_draft_of_a_person_is_listed_published_and_deleted_with_its_agent
            a_draft_of_a_person_expires_unless_a_conversation_uses_it
            open_conversations_with_another_version_are_counted
            a_workflow_s_versions_have_labels_too
        }
        $crate::conformance::cases! { $open, values:
            odd_keys_and_values_survive_in_the_profile_and_history
            odd_keys_and_values_survive_in_steps_and_turns
            odd_keys_and_values_survive_in_agents_and_plans
            chinese_ids_are_as_good_as_others
        }
    };
}

/// All cases of a queue with the settings of [`kit::settings`].
macro_rules! queue_suite {
    ($open:path) => {
        $crate::conformance::cases! { $open, queue:
            a_job_is_delivered_as_published_and_gone_when_acknowledged
            a_delivery_tells_whether_others_wait_behind_it
            any_bytes_are_a_payload
            a_repeat_of_a_message_id_is_dropped
            a_pull_without_a_wait_answers_what_is_there
            a_pull_waits_for_a_job_and_takes_no_more_than_asked
            a_lane_is_read_in_order_whoever_was_woken
            what_is_not_acknowledged_comes_again
            progress_keeps_a_delivery_from_coming_again
            a_refused_delivery_comes_again_after_its_delay
            a_full_lane_refuses_while_others_go_on
            concurrent_publishers_get_distinct_rising_sequences
            events_come_in_order_and_repeats_are_dropped
            many_callers_publish_many_events_concurrently
            a_reader_begins_where_it_asks_to
            a_reader_misses_and_repeats_nothing_while_events_are_emitted
            sessions_do_not_see_each_other_s_events
            a_session_is_known_by_its_jobs_and_events
            a_hint_of_a_cancellation_reaches_every_listener
            a_timer_hint_reaches_every_listener
        }
        $crate::conformance::cases! { $open, event_log:
            the_log_has_the_events_of_all_sessions_in_order
            a_reader_of_the_log_misses_nothing_while_events_are_emitted
            deleted_events_are_missing_in_the_log
        }
        $crate::conformance::cases! { $open, erasure:
            a_purged_lane_delivers_nothing
            purged_events_are_gone
        }
        $crate::conformance::cases! { $open, dead_letters:
            a_dead_letter_is_taken_and_its_repeat_too
            a_dead_letter_is_removed_once_and_leaves_its_number_free_for_nobody
            a_payload_beyond_the_limit_is_cut_and_its_size_is_kept
            dead_letters_are_listed_within_their_limits
        }
    };
}

pub(crate) use cases;
pub(crate) use queue_suite;
pub(crate) use store_suite;

//! One suite over all four drivers: what the seam (`ring::driver`) promises, asked of each through `Io`.
//!
//! A case is a function of a [`Stage`](stage::Stage): an `Io` over the driver, and an empty directory on the disk that
//! the driver has. Every case runs on every driver; where a driver can't do a thing, the case asserts that it refuses,
//! by name. On the simulator a case runs once per seed, and a failure prints its seed. Where io_uring is blocked, its
//! cases assert that the refusal gives a reason, and say so on standard error.
//!
//! What was rejected: a generic driver parameter (the seam is an enum), and separate suites (they drift apart).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod files;
mod links;
mod polls;
mod slots;
mod stage;
mod system;
mod tasks;
mod timers;

macro_rules! over {
    ($driver:ident, $which:ident, $($module:ident: $($case:ident)*;)*) => {
        mod $driver {
            $(mod $module {
                $(#[test]
                fn $case() {
                    crate::stage::run(crate::stage::Which::$which, crate::$module::$case);
                })*
            })*
        }
    };
}

macro_rules! conformance {
    ($($cases:tt)*) => {
        over!(uring, Uring, $($cases)*);
        over!(posix, Posix, $($cases)*);
        over!(inline, Inline, $($cases)*);
        over!(sim, Sim, $($cases)*);
    };
}

conformance! {
    files:
        what_is_written_is_read_back_at_its_offset
        a_hole_reads_as_zeros
        a_read_is_short_at_the_end_of_the_file_only
        nothing_to_transfer_is_no_error
        a_large_transfer_is_whole
        a_write_through_and_every_sync_succeed
        a_direct_file_takes_whole_blocks
        a_file_opened_for_reading_refuses_writes
        a_descriptor_that_is_none_is_refused
        the_memory_comes_back_with_the_completion
        a_transfer_whose_first_result_counts_is_told_so
        many_in_flight_each_do_their_own
        a_full_queue_loses_nothing;
    links:
        a_chain_runs_in_order
        an_error_cancels_the_rest_of_a_soft_chain
        a_short_transfer_cancels_the_rest_of_a_soft_chain
        a_hard_link_holds
        a_broken_soft_link_cancels_beyond_hard_links
        a_chain_that_can_never_fit_is_refused_whole
        chains_wait_for_room_and_stay_whole
        chains_side_by_side_keep_their_own_order
        a_chain_of_one_is_a_plain_operation;
    timers:
        a_time_out_ends_with_etime_and_not_early
        the_shorter_time_out_ends_first
        a_cancelled_time_out_ends_with_ecanceled
        cancelling_what_is_over_or_unknown_changes_nothing
        cancelling_one_leaves_the_others
        a_cancelled_file_operation_still_completes
        a_cancelled_head_ends_its_soft_chain
        an_operation_that_waits_for_room_can_be_cancelled
        a_link_time_out_ends_what_takes_longer
        a_link_time_out_ends_with_its_operation
        a_chain_goes_on_behind_a_link_time_out
        a_link_time_out_without_an_operation_is_refused
        a_turn_waits_no_longer_than_told;
    polls:
        a_poll_waits_for_its_event
        a_poll_of_what_is_ready_ends_at_once
        a_poll_is_cancelled
        a_multishot_poll_completes_again_and_again
        a_poll_can_be_limited;
    slots:
        an_operation_names_a_slot
        an_empty_slot_and_one_outside_are_refused
        a_slot_is_cleared_in_its_place_in_a_chain
        a_replaced_slot_leaves_what_is_under_way
        a_registered_buffer_is_read_and_written
        a_client_is_told_with_the_memory
        the_descriptor_becomes_readable;
    tasks:
        tasks_run_side_by_side
        joining_gives_results_in_their_order
        waiting_for_a_condition_sees_other_tasks
        a_task_s_end_is_awaited
        a_future_that_is_dropped_leaves_its_operation
        dropping_the_handle_drains_what_is_in_flight
        letters_finish_external_operations
        another_thread_finishes_external_operations
        another_thread_wakes_a_turn
        the_clock_never_goes_back;
    system:
        opening_follows_its_flags
        names_are_listed_in_order
        a_rename_replaces
        a_removed_name_is_gone_and_its_open_file_lives
        a_length_is_set
        a_lock_excludes_other_openings_until_it_is_closed
        a_symbolic_link_is_refused
        a_directory_is_made_when_asked;
}

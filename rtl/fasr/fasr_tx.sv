// FaSR's sender: what an acknowledgement or a timeout changes, and the packets to retransmit. Combinational; one event.
//
// Source: FaSR (2025) sections III-B2 and III-D; mechanisms R-5 to R-8, R-15, R-16.
//
// UNACK follows from the acknowledgement alone (R-7). A SACK that starts a recovery retransmits all packets before it;
// a later one those between sack-high and it, if there are any and lost-cnt has grown or overflowed (R-6, R-16). A
// timeout or FNACK retransmits UNACK, with more than one packet missing also the zeros of the bitmap, with none known
// to be missing the whole window (R-8, R-15). A NAK, from a receiver without space, retransmits the window. An FNACK or
// NAK is processed once until UNACK advances, a timeout always.
//
// An event whose acknowledgement releases blocks is processed in two passes: with THEN_TRIM only UNACK changes, and
// the event is passed again when the blocks before it are released. `finished_o` is clear for the first pass.
module fasr_tx (
    input  fasr_pkg::event_kind_t kind_i,
    input  fasr_pkg::psn_t        cumulative_i,
    input  fasr_pkg::psn_t        psn_i,
    input  fasr_pkg::lost_t       lost_i,
    input  fasr_pkg::psn_t        next_i,          // the next packet to be sent for the first time
    input  fasr_pkg::sr_t         sr_i,
    input  fasr_pkg::lane_t       lane_i,
    input  logic        can_open_i,
    input  logic [6:0]  blocks_free_i,
    output fasr_pkg::sr_t         sr_o,
    output fasr_pkg::lane_t       lane_o,
    output logic        advanced_o,      // UNACK has advanced
    output logic        is_empty_o,      // no packet is in flight after the event
    output logic        finished_o,
    // Packets to retransmit; with THEN_SCAN, UNACK is retransmitted, and those up to the end that are not recorded.
    output logic        retransmits_o,
    output fasr_pkg::psn_t        from_o,
    output fasr_pkg::psn_t        to_o,
    // Access to the blocks, as in `fasr_rx`.
    output logic        records_o,
    output logic [6:0]  needed_o,
    output fasr_pkg::word_t       bit_o,
    output fasr_pkg::word_t       first_o,
    output fasr_pkg::then_t       then_o
);
  logic is_stale, is_unsent, passes_high, passes_block, sack_after_una, sack_before_next, sack_higher;
  logic high_after_una, high_before_next;
  fasr_pkg::psn_t una, advance, old_high, first_base, block_end, run_end;
  fasr_pkg::psn_t from_run, to_last;
  logic [9:0] run;
  logic [6:0] needed;
  fasr_pkg::word_t high_bit, old_bit;
  logic is_ack, advances, empty, is_one, several, has_lane, in_blocks, in_tail, may_act;
  fasr_pkg::lane_t lane, opened;
  fasr_pkg::lost_t reported;
  fasr_pkg::sr_t acked;

  serial_after i_stale (.a_i(sr_i.una), .b_i(cumulative_i), .after_o(is_stale));
  serial_after i_unsent (.a_i(cumulative_i), .b_i(next_i), .after_o(is_unsent));
  serial_after i_high (.a_i(una), .b_i(lane_i.high), .after_o(passes_high));
  serial_after i_block (.a_i(block_end), .b_i(una), .after_o(passes_block));
  serial_after i_sack (.a_i(psn_i), .b_i(una), .after_o(sack_after_una));
  serial_after i_next (.a_i(next_i), .b_i(psn_i), .after_o(sack_before_next));
  serial_after i_higher (.a_i(psn_i), .b_i(old_high), .after_o(sack_higher));
  serial_after i_end (.a_i(lane_i.high), .b_i(una), .after_o(high_after_una));
  serial_after i_known (.a_i(next_i), .b_i(lane_i.high), .after_o(high_before_next));

  assign is_ack = (kind_i != fasr_pkg::EV_TIMEOUT) && !is_stale && !is_unsent;
  assign una = is_ack ? cumulative_i : sr_i.una;
  assign advance = una - sr_i.una;
  assign advances = advance != '0;
  assign empty = una == next_i;
  assign block_end = lane_i.base + 24'd10;

  fasr_place i_place (
      .lane_i(lane), .hole_i(una), .psn_i(psn_i), .needed_o(needed), .bit_o(high_bit), .first_o(first_o),
      .first_base_o(first_base), .run_o(run)
  );

  // The state after the cumulative acknowledgement.
  always_comb begin
    opened = '0;
    opened.open = 1'b1;
    opened.high = una;
    acked = sr_i;
    acked.una = una;
    if (advances && sr_i.recovering) begin
      acked.acted = 1'b0;
      if (!lane_i.open || passes_high || empty) begin
        acked.recovering = 1'b0;
        acked.lost = '0;
      end
    end
    lane = lane_i;
    if (!lane_i.open || (advances && passes_high)) lane = opened;
    else if (advances) lane.run = (|advance[23:10] || (advance[9:0] >= lane_i.run)) ? '0 : lane_i.run - advance[9:0];
  end
  assign has_lane = lane_i.open && !(advances && passes_high);

  // A SACK for a packet that is not the highest: its block is the tail, or is searched from the head on.
  assign old_high = lane.high;
  assign run_end = una + 24'd1 + {14'd0, lane.run};
  assign from_run = psn_i - run_end;
  assign to_last = psn_i - lane.last;
  assign in_blocks = lane.slow && !from_run[23] && (to_last[23] || (to_last < 24'd10));
  assign in_tail = !to_last[23];
  assign old_bit = 10'(16'd1 << to_last[3:0]);

  assign is_one = lost_i == fasr_pkg::LOST_ONE;
  assign reported = (kind_i == fasr_pkg::EV_FNACK) ? lost_i : acked.lost;
  assign several = reported.overflow || (reported.count > 3'd1);
  assign may_act = (kind_i == fasr_pkg::EV_TIMEOUT) || !acked.acted;

  always_comb begin
    sr_o = acked;
    lane_o = has_lane ? lane : '0;
    advanced_o = advances;
    is_empty_o = empty;
    finished_o = 1'b1;
    retransmits_o = 1'b0;
    from_o = una;
    to_o = next_i;
    records_o = 1'b0;
    needed_o = needed;
    bit_o = high_bit;
    then_o = fasr_pkg::THEN_NONE;

    if ((kind_i != fasr_pkg::EV_TIMEOUT) && (is_stale || is_unsent)) begin
      lane_o = lane_i;
    end else if (advances && lane_i.slow && (passes_high || !passes_block)) begin
      // Blocks before UNACK are released first.
      then_o = fasr_pkg::THEN_TRIM;
      finished_o = 1'b0;
      lane_o = lane_i;
      if (passes_high) lane_o.open = 1'b0;
      else lane_o.run = lane.run;
    end else if (!empty) begin
      case (kind_i)
        fasr_pkg::EV_SACK:
        if (sack_after_una && sack_before_next) begin
          if (has_lane || can_open_i) begin
            // The record of arrivals.
            lane_o = lane;
            if (!sack_higher) begin
              if (!is_one && in_blocks) begin
                needed_o = '0;
                bit_o = old_bit;
                if (in_tail) records_o = 1'b1;
                else then_o = fasr_pkg::THEN_SEEK;
              end
            end else begin
              lane_o.high = psn_i;
              if (is_one) begin
                lane_o.run = 10'(psn_i - una);
                lane_o.slow = 1'b0;
                if (lane.slow) then_o = fasr_pkg::THEN_RELEASE;
              end else if (needed <= blocks_free_i) begin
                records_o = 1'b1;
                lane_o.run = run;
                lane_o.slow = 1'b1;
                if (!lane.slow) lane_o.base = first_base;
                if (needed != '0) lane_o.last = lane.slow ? lane.last + 24'd10 : first_base;
                if (needed > 7'd1) then_o = fasr_pkg::THEN_APPEND;
              end
            end
            // The decision.
            to_o = psn_i;
            if (!acked.recovering || sack_higher) begin
              sr_o.recovering = 1'b1;
              sr_o.lost = lost_i;
              retransmits_o = 1'b1;
              if (acked.recovering) begin
                from_o = old_high + 24'd1;
                retransmits_o = (psn_i != from_o) && (lost_i.overflow || (lost_i.count > acked.lost.count));
              end
            end
          end else if (!acked.acted) begin
            // No unit is free: as a NAK.
            sr_o.recovering = 1'b1;
            sr_o.acted = 1'b1;
            retransmits_o = 1'b1;
          end
        end
        fasr_pkg::EV_AACK: if (acked.recovering) sr_o.lost = lost_i;
        fasr_pkg::EV_FNACK, fasr_pkg::EV_NAK, fasr_pkg::EV_TIMEOUT: begin
          sr_o.lost = reported;
          if (may_act) begin
            sr_o.recovering = 1'b1;
            sr_o.acted = 1'b1;
            retransmits_o = 1'b1;
            if ((kind_i == fasr_pkg::EV_FNACK) || ((kind_i == fasr_pkg::EV_TIMEOUT) && (reported != '0))) begin
              to_o = una + 24'd1;
              if (several && has_lane && high_after_una) to_o = high_before_next ? lane.high : next_i;
            end
            if (lane.slow && (to_o != una + 24'd1)) then_o = fasr_pkg::THEN_SCAN;
          end
        end
        default: ;
      endcase
    end
  end
endmodule

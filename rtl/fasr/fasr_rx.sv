// FaSR's receiver: what a data packet changes, and the acknowledgement for it. Combinational; one packet.
//
// Source: FaSR (2025) sections III-B1 and III-D; mechanisms R-1 to R-4, R-13 to R-16.
//
// | packet                                | answer                 | state
// | RCV-NXT, nothing missing              | ACK                    | RCV-NXT + 1
// | RCV-NXT, fast path                    | AACK                   | RCV-NXT = sack-high + 1, unit released
// | RCV-NXT, slow path                    | AACK after the walk    | by `fasr_sr`, from `walk_from_o` on
// | higher than all received              | SACK                   | recorded; NAK without space
// | RCV-NXT to sack-high, slow path       | FNACK                  | dropped
// | received before                       | ACK                    | none
// | beyond the reach of the window        | NAK                    | none
//
// On the fast path no block is read or written. A packet that is recorded on the slow path sets a bit in the tail block
// or takes a new one, in this cycle; `then_o` says what else is left to do for `fasr_sr`.
module fasr_rx (
    input  fasr_pkg::psn_t       psn_i,
    input  fasr_pkg::sr_t        sr_i,
    input  fasr_pkg::lane_t      lane_i,
    input  logic       can_open_i,      // the queue pair holds a unit, or one is free
    input  logic [6:0] blocks_free_i,
    output fasr_pkg::sr_t        sr_o,
    output fasr_pkg::lane_t      lane_o,
    output fasr_pkg::say_t       say_o,
    output logic       placed_o,
    output fasr_pkg::lost_t      lost_o,
    // Access to the blocks: `needed_o` blocks are taken, or none, and then a bit in the tail is set.
    output logic       records_o,
    output logic [6:0] needed_o,
    output fasr_pkg::word_t      bit_o,
    output fasr_pkg::word_t      first_o,
    output fasr_pkg::then_t      then_o,
    output fasr_pkg::psn_t       walk_from_o
);
  fasr_pkg::psn_t       offset, missed, first_base;
  logic       is_next, is_behind, is_beyond, is_higher, is_refused, is_new_gap, after_gap_seen;
  logic       is_fast, fits, no_block;
  logic [9:0] run;
  fasr_pkg::lane_t      lane, opened;
  fasr_pkg::lost_t      added;
  logic [23:0] sum;

  serial_after i_behind (.a_i(sr_i.rcv_nxt), .b_i(psn_i), .after_o(is_behind));
  serial_after i_higher (.a_i(psn_i), .b_i(lane.high), .after_o(is_higher));
  serial_after i_gap (.a_i(psn_i), .b_i(sr_i.gap_at), .after_o(after_gap_seen));

  fasr_place i_place (
      .lane_i(lane), .hole_i(sr_i.rcv_nxt), .psn_i(psn_i), .needed_o(needed_o), .bit_o(bit_o), .first_o(first_o),
      .first_base_o(first_base), .run_o(run)
  );

  always_comb begin
    opened = '0;
    opened.open = 1'b1;
    opened.high = sr_i.rcv_nxt;
    lane = lane_i.open ? lane_i : opened;
  end

  assign offset = psn_i - sr_i.rcv_nxt;
  assign is_next = offset == '0;
  assign is_beyond = |offset[23:$clog2(fasr_pkg::REACH)];
  assign is_new_gap = !sr_i.gap_seen || !after_gap_seen;
  assign is_refused = sr_i.refuses || lane_i.fallen;

  // The packets missed between the highest one and this one. At the first gap, RCV-NXT itself is missing too.
  assign missed = psn_i - lane.high - {23'd0, lane_i.open};
  assign sum = missed + {21'd0, lane.lost.count};
  always_comb begin
    added = fasr_pkg::LOST_OVERFLOW;
    if (!lane.lost.overflow && (sum[23:3] == '0)) added = {1'b0, sum[2:0]};
  end

  // With one packet missing, which is RCV-NXT, sack-high is the whole record.
  assign is_fast = !lane.slow && (added == fasr_pkg::LOST_ONE);
  assign no_block = is_fast;
  assign fits = (lane_i.open || can_open_i) && (no_block || (needed_o <= blocks_free_i));

  always_comb begin
    sr_o = sr_i;
    lane_o = lane_i;
    say_o = fasr_pkg::SAY_ACK;
    placed_o = 1'b0;
    lost_o = lane_i.lost;
    records_o = 1'b0;
    then_o = fasr_pkg::THEN_NONE;
    walk_from_o = sr_i.rcv_nxt + 24'd1 + {14'd0, lane_i.run};

    if (is_next) begin
      placed_o = 1'b1;
      sr_o.gap_seen = 1'b0;
      if (!lane_i.open) begin
        sr_o.rcv_nxt = sr_i.rcv_nxt + 24'd1;
        if (sr_o.rcv_nxt == sr_i.refuses_to) sr_o.refuses = 1'b0;
      end else begin
        say_o = fasr_pkg::SAY_AACK;
        if (!lane_i.lost.overflow && (lane_i.lost.count != '0)) lane_o.lost.count = lane_i.lost.count - 3'd1;
        if (lane_i.slow) begin
          then_o = fasr_pkg::THEN_WALK;
        end else begin
          sr_o.rcv_nxt = lane_i.high + 24'd1;
          lane_o = '0;
        end
        lost_o = lane_o.lost;
      end
    end else if (is_behind) begin
      say_o = fasr_pkg::SAY_ACK;
    end else if (is_beyond) begin
      say_o = fasr_pkg::SAY_NAK;
    end else if (lane_i.open && !is_higher) begin
      // On the fast path everything up to sack-high was received.
      if (lane_i.slow && (psn_i != lane_i.high)) say_o = fasr_pkg::SAY_FNACK;
    end else if (is_refused || !fits) begin
      say_o = is_new_gap ? fasr_pkg::SAY_NAK : fasr_pkg::SAY_NONE;
      sr_o.gap_seen = 1'b1;
      sr_o.gap_at = psn_i;
      if (!is_refused) begin
        if (lane_i.open) begin
          lane_o.fallen = 1'b1;
        end else begin
          sr_o.refuses = 1'b1;
          sr_o.refuses_to = psn_i + 24'd1;
        end
      end
    end else begin
      say_o = fasr_pkg::SAY_SACK;
      placed_o = 1'b1;
      lane_o = lane;
      lane_o.lost = added;
      lost_o = added;
      lane_o.high = psn_i;
      if (no_block) begin
        lane_o.run = offset[9:0];
      end else begin
        records_o = 1'b1;
        lane_o.run = run;
        lane_o.slow = 1'b1;
        if (!lane.slow) lane_o.base = first_base;
        if (needed_o != '0) lane_o.last = lane.slow ? lane.last + 24'd10 : first_base;
        if (needed_o > 7'd1) then_o = fasr_pkg::THEN_APPEND;
      end
    end
  end
endmodule

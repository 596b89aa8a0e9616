// IRN's receiveAck: an acknowledgement has arrived (SIGCOMM'18, sections 3.1 and 6.2.1; mechanisms I-4 to I-6, I-22).
//
// The cumulative id advances `una`, also past directly following packets that are acknowledged selectively. The
// selective id of a NACK is recorded. A NACK starts the recovery; it ends when `una` is after the recovery sequence, or
// nothing is in flight. In recovery, the packets before the highest selective id are lost, and so is the packet at
// `una` if it was sent before a timeout. When a packet becomes lost, the recovery sequence becomes the last packet
// sent.
//
// All distances are counted from `una` before the event, so that the highest selective id and the packets before it
// that are not known to be lost follow from the context alone, beside the search for the new `una`. The packet at `una`
// is never in the bitmap.
//
// Acknowledgements of packets that were not sent have no effect, nor has an ACK that does not advance `una`. A NACK
// that is older than `una`, or that names a packet below the new `una` as missing, only records its selective id.
//
// Latency: none, or two cycles if PIPE is 1; initiation interval 1.
module irn_receive_ack #(
    parameter int unsigned W = 128,
    parameter int unsigned PIPE = 0
) (
    input  logic                     clk,
    // The acknowledgement.
    input  logic                     is_nack_i,
    input  logic [irn_pkg::ID_W-1:0] cumulative_i,
    input  logic                     has_selective_i,
    input  logic [irn_pkg::ID_W-1:0] selective_i,
    // Context: as in `irn_tx_free`; the end of what was sent before a timeout, and the recovery sequence.
    input  logic [irn_pkg::ID_W-1:0] una_i,
    input  logic [irn_pkg::ID_W-1:0] next_i,
    input  logic [$clog2(W):0]       again_i,
    input  logic [$clog2(W):0]       lost_i,
    input  logic [$clog2(W):0]       presumed_i,
    input  logic [irn_pkg::ID_W-1:0] recovery_i,
    input  irn_pkg::flags_t          flags_i,
    input  logic [W-1:0]             sacked_i,
    // Context after the acknowledgement.
    output logic [irn_pkg::ID_W-1:0] una_o,
    output logic [$clog2(W):0]       again_o,
    output logic [$clog2(W):0]       lost_o,
    output logic [$clog2(W):0]       presumed_o,
    output logic [irn_pkg::ID_W-1:0] recovery_o,
    output irn_pkg::flags_t          flags_o,
    output logic [W-1:0]             sacked_o,
    // Packets that are acknowledged cumulatively for the first time, whether a packet is acknowledged selectively for
    // the first time, and the change of the timer.
    output logic [$clog2(W):0]       acknowledged_o,
    output logic                     is_new_selective_o,
    output logic [1:0]               timer_o
);
  localparam int unsigned B = $clog2(W);
  localparam int unsigned ID_W = irn_pkg::ID_W;

  // Context and event, passed on from stage to stage.
  typedef struct packed {
    logic [ID_W-1:0] una;
    logic [ID_W-1:0] next;
    logic [B:0]      again;
    logic [B:0]      lost;
    logic [B:0]      presumed;
    logic [ID_W-1:0] recovery;
    logic            recovering;
    logic            extended;
    logic            timed_out;
    logic            spare;
    logic [W-1:0]    sacked;
    logic            is_nack;
    logic [B:0]      in_flight;
  } common_t;

  typedef struct packed {
    // The cumulative id is `una` or later, and of a packet sent; its distance and position, and the position of the
    // next packet from it on that is missing.
    logic         is_fresh;
    logic [B-1:0] from;
    logic [B-1:0] stop;
    logic [B:0]   offset;
    logic         has_effect;
    // The selective id is of a packet in flight, and its distance.
    logic         has_selective;
    logic [B-1:0] selective;
    // Position of the highest packet acknowledged selectively, and its distance, zero if there is none.
    logic [B-1:0] top;
    logic [B-1:0] highest;
  } search_t;

  typedef struct packed {
    logic [B:0]      advance;
    logic            is_fresh;
    logic            is_exact;
    logic            has_effect;
    logic            has_selective;
    logic            is_new;
    logic [B-1:0]    selective;
    logic [B-1:0]    highest;
    // What is lost already, and whether a packet between it and the highest one is missing: before, and with the
    // selective id.
    logic [B:0]      lost;
    logic            has_hole;
    logic            has_hole_still;
  } holes_t;

  common_t common, common_q, common_qq;
  search_t search, search_q;
  holes_t  holes, holes_q;

  // Stage 1: searches in the bitmap.

  logic [ID_W-1:0] in_flight, offset, selective;
  logic [B-1:0]    stop, highest;
  logic            has_stop, has_highest, is_fresh, is_stale;

  assign in_flight = next_i - una_i;
  assign offset = cumulative_i - una_i;
  assign selective = selective_i - una_i;
  assign is_fresh = offset <= in_flight;

  serial_after #(.W(ID_W)) i_stale (.a_i(una_i), .b_i(cumulative_i), .after_o(is_stale));
  first_in_ring #(.W(W)) i_stop (
      .map_i(~sacked_i),
      .head_i(cumulative_i[B-1:0]),
      .found_o(has_stop),
      .position_o(stop)
  );
  last_in_ring #(.W(W)) i_highest (
      .map_i(sacked_i),
      .head_i(una_i[B-1:0]),
      .found_o(has_highest),
      .position_o(highest)
  );

  always_comb begin
    common.una = una_i;
    common.next = next_i;
    common.again = again_i;
    common.lost = lost_i;
    common.presumed = presumed_i;
    common.recovery = recovery_i;
    common.recovering = flags_i.recovering;
    common.extended = flags_i.extended;
    common.timed_out = flags_i.timed_out;
    common.spare = flags_i.spare;
    common.sacked = sacked_i;
    common.is_nack = is_nack_i;
    common.in_flight = in_flight[B:0];
    search.is_fresh = is_fresh;
    search.from = cumulative_i[B-1:0];
    search.stop = has_stop ? stop : cumulative_i[B-1:0];
    search.offset = offset[B:0];
    search.has_effect = is_nack_i ? (is_fresh || is_stale) : (is_fresh && offset != '0);
    search.has_selective = is_nack_i && has_selective_i && (selective < in_flight);
    search.selective = selective[B-1:0];
    search.top = highest;
    search.highest = has_highest ? (highest - una_i[B-1:0]) : '0;
  end

  cut #(.W($bits(common)), .IS_REGISTER(PIPE)) i_cut_common (.clk(clk), .value_i(common), .value_o(common_q));
  cut #(.W($bits(search)), .IS_REGISTER(PIPE)) i_cut_search (.clk(clk), .value_i(search), .value_o(search_q));

  // Stage 2: the advance of `una`, and the packets between what is lost and the highest one.

  logic [B-1:0]    run, hole_from;
  logic [B:0]      advance, lost;
  logic [W-1:0]    before_holes, below_top, mask, missing, own;
  logic            has_selective, has_gap;

  assign run = search_q.stop - search_q.from;
  assign advance = search_q.is_fresh ? (search_q.offset + {1'b0, run}) : '0;
  // A packet that is `una` or before it then is acknowledged already.
  assign has_selective = search_q.has_selective && ({1'b0, search_q.selective} > advance);

  // After a timeout, the packets before the highest one are lost, and at least that at `una`.
  always_comb begin
    lost = common_q.lost;
    if (common_q.timed_out) lost = (search_q.highest == '0) ? {{B{1'b0}}, 1'b1} : {1'b0, search_q.highest};
  end

  // From the end of what is lost to the highest packet, whose position is known.
  assign hole_from = common_q.una[B-1:0] + common_q.lost[B-1:0];
  below_mask #(.W(W)) i_before (.count_i({1'b0, hole_from}), .mask_o(before_holes));
  below_mask #(.W(W)) i_below (.count_i({1'b0, search_q.top}), .mask_o(below_top));
  assign has_gap = !common_q.timed_out && common_q.lost < {1'b0, search_q.highest};
  assign mask = (hole_from > search_q.top) ? (~before_holes | below_top) : (~before_holes & below_top);
  one_hot #(.W(W)) i_own (
      .enable_i(search_q.has_selective),
      .position_i(common_q.una[B-1:0] + search_q.selective),
      .map_o(own)
  );
  assign missing = mask & ~common_q.sacked;

  always_comb begin
    holes.advance = advance;
    holes.is_fresh = search_q.is_fresh;
    holes.is_exact = (run == '0);
    holes.has_effect = search_q.has_effect;
    holes.has_selective = has_selective;
    holes.is_new = has_selective && ((own & common_q.sacked) == '0);
    holes.selective = search_q.selective;
    holes.highest = search_q.highest;
    holes.lost = lost;
    holes.has_hole = has_gap && (missing != '0);
    holes.has_hole_still = has_gap && ((missing & ~own) != '0);
  end

  cut #(.W($bits(common)), .IS_REGISTER(PIPE)) i_cut_common_2 (.clk(clk), .value_i(common_q), .value_o(common_qq));
  cut #(.W($bits(holes)), .IS_REGISTER(PIPE)) i_cut_holes (.clk(clk), .value_i(holes), .value_o(holes_q));

  // Stage 3: the recovery and the next context.

  logic [ID_W-1:0] una;
  logic [B:0]      behind, highest_now, end_of_new, end_of_all, end_of_old, end_of_lost;
  logic            is_after, advances, is_empty, remains, uncovers, starts, enters, is_una_lost, is_beyond, is_lost;
  logic [W-1:0]    passed, recorded;

  assign una = common_qq.una + {{ID_W - B - 1{1'b0}}, holes_q.advance};
  assign advances = (holes_q.advance != '0);
  assign is_empty = (holes_q.advance == common_qq.in_flight);

  // Both distances from the old `una` are compared, not the ids, so that the sum is not waited for.
  serial_after #(.W(ID_W)) i_after (
      .a_i({{ID_W - B - 1{1'b0}}, holes_q.advance}),
      .b_i(common_qq.recovery - common_qq.una),
      .after_o(is_after)
  );

  assign remains = common_qq.recovering && !(advances && (is_after || is_empty));
  // The packet at the new `una` is lost: a later one has arrived, or it was sent before the timeout.
  assign uncovers = remains && advances &&
      ({1'b0, holes_q.highest} > holes_q.advance || common_qq.presumed > holes_q.advance);
  assign starts = common_qq.is_nack && holes_q.is_fresh && holes_q.is_exact && !is_empty;
  assign enters = starts && !remains;

  // Packets become lost: that at `una`, if it is not lost yet, one between what is lost and the highest one, or one
  // after that, if the new selective id does not follow it directly.
  assign is_una_lost = (holes_q.lost <= holes_q.advance);
  assign is_beyond = holes_q.has_selective && ({1'b0, holes_q.selective} > holes_q.lost) &&
      ({1'b0, holes_q.selective} > {1'b0, holes_q.highest} + {{B{1'b0}}, 1'b1});
  assign is_lost = enters || (uncovers && (is_una_lost || holes_q.has_hole)) ||
      (starts && (is_una_lost || holes_q.has_hole_still || is_beyond));

  // End of what is lost, from the old `una`: one after the new `una`, or the highest packet.
  assign behind = holes_q.advance + {{B{1'b0}}, 1'b1};
  always_comb begin
    highest_now = {1'b0, holes_q.highest};
    if (starts && holes_q.has_selective && holes_q.selective > holes_q.highest)
      highest_now = {1'b0, holes_q.selective};
    end_of_new = (highest_now > behind) ? highest_now : behind;
    end_of_all = (holes_q.lost > end_of_new) ? holes_q.lost : end_of_new;
    end_of_old = (holes_q.lost > holes_q.advance) ? (holes_q.lost - holes_q.advance) : '0;
    end_of_lost = end_of_old;
    if (enters) end_of_lost = end_of_new - holes_q.advance;
    else if (starts || uncovers) end_of_lost = end_of_all - holes_q.advance;
  end

  range_mask #(.W(W)) i_passed (
      .from_i(common_qq.una[B-1:0]),
      .count_i(holes_q.advance),
      .mask_o(passed)
  );
  one_hot #(.W(W)) i_recorded (
      .enable_i(holes_q.has_selective),
      .position_i(common_qq.una[B-1:0] + holes_q.selective),
      .map_o(recorded)
  );

  always_comb begin
    una_o = common_qq.una;
    again_o = common_qq.again;
    lost_o = common_qq.lost;
    presumed_o = common_qq.presumed;
    recovery_o = common_qq.recovery;
    flags_o.spare = common_qq.spare;
    flags_o.timed_out = common_qq.timed_out;
    flags_o.extended = common_qq.extended;
    flags_o.recovering = common_qq.recovering;
    sacked_o = common_qq.sacked;
    acknowledged_o = '0;
    is_new_selective_o = 1'b0;
    timer_o = irn_pkg::KEEP;
    if (holes_q.has_effect) begin
      una_o = una;
      again_o = (enters || common_qq.again < holes_q.advance) ? '0 : (common_qq.again - holes_q.advance);
      lost_o = end_of_lost;
      presumed_o = (enters || common_qq.presumed < holes_q.advance) ? '0 : (common_qq.presumed - holes_q.advance);
      if (is_lost) recovery_o = common_qq.next - {{ID_W - 1{1'b0}}, 1'b1};
      flags_o.recovering = remains || enters;
      flags_o.extended = common_qq.extended && !advances;
      flags_o.timed_out = 1'b0;
      sacked_o = (common_qq.sacked & ~passed) | recorded;
      acknowledged_o = holes_q.advance;
      is_new_selective_o = holes_q.is_new;
      if (advances) timer_o = is_empty ? irn_pkg::STOP : irn_pkg::RESTART;
    end
  end
endmodule

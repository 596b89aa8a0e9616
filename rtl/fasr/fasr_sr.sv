// FaSR's SR module: loss recovery of all queue pairs, one event after the other.
//
// Source: FaSR (2025) sections III-B to III-D and IV-B; mechanisms R-1 to R-11, R-13 to R-16, R-24.
//
// An event that is accepted is processed in the next cycle, with the context read meanwhile: `sr_i`, `next_i` and
// `timer_i` belong to the queue pair of the event accepted in the cycle before. That is the whole processing on the
// fast path, so there is an event a cycle. On the slow path one block is visited in each further cycle: when a gap is
// closed, the blocks that it fills are walked and released; the acknowledgement leaves when RCV-NXT is known.
//
// Without `go_i` the module stands still for this cycle: others use the write ports of the contexts. Queues of
// acknowledgements and retransmissions must have space before an event is passed, since their outputs cannot wait:
// one acknowledgement for a data packet; otherwise up to BLOCKS + 2 retransmissions for an event.
module fasr_sr (
    input  logic             clk,
    input  logic             rst_n,
    input  logic             go_i,
    input  logic             ev_valid_i,
    input  fasr_pkg::event_t ev_i,
    output logic             ev_ready_o,
    input  fasr_pkg::sr_t    sr_i,
    input  fasr_pkg::psn_t   next_i,
    input  fasr_pkg::timer_t timer_i,
    input  logic [23:0]      now_i,
    input  logic [23:0]      rto_i,          // timeout; and its extension with more packets in flight
    input  logic [23:0]      rto_extension_i,
    output logic             ack_valid_o,
    output fasr_pkg::ack_t   ack_o,
    output logic             retx_valid_o,
    output fasr_pkg::retx_t  retx_o,
    output logic             write_o,        // the context's first group
    output fasr_pkg::sr_t    sr_o,
    output logic             write_timer_o,
    output fasr_pkg::timer_t timer_o,
    output fasr_pkg::qp_t    write_qp_o,
    output logic             done_o,         // the event's processing ends in this cycle
    output fasr_pkg::event_t done_event_o,
    output fasr_pkg::psn_t   done_next_o,    // `next_i` and `timer_i` as they were used
    output fasr_pkg::timer_t done_timer_o,
    output logic [6:0]       cycles_o,       // with an AACK: cycles until RCV-NXT was known
    output fasr_pkg::lane_t  lane_o,         // with `done_o`: the bitmap after the event
    output logic [7:0]       blocks_free_o,
    output logic [fasr_pkg::UNITS-1:0] units_taken_o
);
  typedef enum logic [3:0] {
    RUN      = 4'd0,
    APPEND   = 4'd1,
    WALK     = 4'd2,
    RELEASE  = 4'd3,
    TRIM     = 4'd4,
    SEEK     = 4'd5,
    SCAN     = 4'd6,
    SCAN_END = 4'd7,
    DROP     = 4'd8
  } state_t;

  state_t           state_q, state_d;
  logic             valid_q, first_q, forward_q, busy_d, replays;
  fasr_pkg::event_t event_q;
  fasr_pkg::sr_t    ctx_q, forwarded_q, ctx, sr_rx, sr_tx, sr_new;
  fasr_pkg::psn_t   next_q, next;
  fasr_pkg::timer_t timer_q, forwarded_timer_q, timer;
  logic             forward_timer_q;
  logic [6:0]       needed_q, needed_d, cycles_q;
  fasr_pkg::word_t  bit_q, bit_d;
  fasr_pkg::psn_t   at_q, at_d, to_q, to_d, start_q, start_d;
  fasr_pkg::block_t current_q, current_d;

  assign ctx = first_q ? (forward_q ? forwarded_q : sr_i) : ctx_q;
  assign next = first_q ? next_i : next_q;
  assign timer = first_q ? (forward_timer_q ? forwarded_timer_q : timer_i) : timer_q;

  // The unit.
  logic               is_data, any_unit, take_unit, release_unit, write_unit;
  fasr_pkg::sr_unit_t read_unit, unit_now, new_unit;
  fasr_pkg::unit_t    unit_offer, unit_at;
  fasr_pkg::lane_t    lane, other, lane_new, lane_rx, lane_tx;

  fasr_pool1 i_pool1 (
      .clk(clk), .rst_n(rst_n), .read_i(ctx.unit), .unit_o(read_unit), .write_i(write_unit), .write_at_i(unit_at),
      .unit_i(new_unit), .any_free_o(any_unit), .offer_o(unit_offer), .take_i(take_unit), .release_i(release_unit),
      .release_at_i(ctx.unit), .taken_o(units_taken_o)
  );

  assign is_data = event_q.kind == fasr_pkg::EV_DATA;
  assign unit_now = ctx.held ? read_unit : '0;
  assign lane = is_data ? unit_now.rx : unit_now.tx;
  assign other = is_data ? unit_now.tx : unit_now.rx;
  assign unit_at = ctx.held ? ctx.unit : unit_offer;

  // The blocks.
  logic             set, take, link, release_block;
  fasr_pkg::block_t read_at, offer, next_block;
  fasr_pkg::word_t  word, bits;
  logic [7:0]       free;
  logic [6:0]       blocks_free;
  /* verilator lint_off PINCONNECTEMPTY */
  fasr_pool2 i_pool2 (
      .clk(clk), .rst_n(rst_n), .read_i(read_at), .word_o(word), .next_o(next_block), .set_i(set), .offer_o(offer),
      .free_o(free), .take_i(take), .link_i(link), .tail_i(lane.tail), .bits_i(bits), .release_i(release_block),
      .release_at_i(read_at), .taken_o()
  );
  /* verilator lint_on PINCONNECTEMPTY */
  assign blocks_free = free[6:0];
  assign blocks_free_o = free;

  // The decisions.
  logic                 can_open, rx_placed, rx_records, tx_records, tx_advanced, tx_empty, tx_finished, tx_retransmits;
  logic                 records;
  fasr_pkg::say_t       rx_say;
  fasr_pkg::lost_t      rx_lost;
  logic [6:0]           rx_needed, tx_needed, needed;
  fasr_pkg::word_t      rx_bit, rx_first, tx_bit, tx_first, new_bit, first_bits;
  fasr_pkg::then_t      rx_then, tx_then;
  fasr_pkg::psn_t       walk_from, tx_from, tx_to;
  assign can_open = ctx.held || any_unit;

  fasr_rx i_rx (
      .psn_i(event_q.cumulative), .sr_i(ctx), .lane_i(lane), .can_open_i(can_open), .blocks_free_i(blocks_free),
      .sr_o(sr_rx), .lane_o(lane_rx), .say_o(rx_say), .placed_o(rx_placed), .lost_o(rx_lost), .records_o(rx_records),
      .needed_o(rx_needed), .bit_o(rx_bit), .first_o(rx_first), .then_o(rx_then), .walk_from_o(walk_from)
  );
  fasr_tx i_tx (
      .kind_i(event_q.kind), .cumulative_i(event_q.cumulative), .psn_i(event_q.psn), .lost_i(event_q.lost),
      .next_i(next), .sr_i(ctx), .lane_i(lane), .can_open_i(can_open), .blocks_free_i(blocks_free),
      .sr_o(sr_tx), .lane_o(lane_tx), .advanced_o(tx_advanced), .is_empty_o(tx_empty), .finished_o(tx_finished),
      .retransmits_o(tx_retransmits), .from_o(tx_from), .to_o(tx_to), .records_o(tx_records), .needed_o(tx_needed),
      .bit_o(tx_bit), .first_o(tx_first), .then_o(tx_then)
  );

  assign records = is_data ? rx_records : tx_records;
  assign needed = is_data ? rx_needed : tx_needed;
  assign new_bit = is_data ? rx_bit : tx_bit;
  assign first_bits = is_data ? rx_first : tx_first;

  // Kinds of events.
  logic is_tx, is_timer_kind, is_due, deadline_ahead;
  serial_after i_due (.a_i(timer.deadline), .b_i(now_i), .after_o(deadline_ahead));
  assign is_due = timer.on && !deadline_ahead;
  assign is_timer_kind = (event_q.kind == fasr_pkg::EV_EXTEND) || (event_q.kind == fasr_pkg::EV_ARM);
  assign is_tx = !is_data && !is_timer_kind && (event_q.kind != fasr_pkg::EV_RELEASE)
      && ((event_q.kind != fasr_pkg::EV_TIMEOUT) || (is_due && (ctx.una != next)));

  // The first zero of the head block at or after the position, and whether the packet there is beyond sack-high.
  logic [9:0]      zeros;
  logic            zero_found, base_ends_una, next_ends_una, at_after_start, to_after_block, to_after_tail;
  logic [3:0]      zero;
  logic [23:0]     walk_offset, walk_end, block_end, next_end, at_distance, to_distance, tail_end, from_tail;
  fasr_pkg::word_t scan_low, scan_high, scan_map;
  assign walk_offset = at_q - lane.base;
  assign zeros = ~word & (10'h3ff << walk_offset[3:0]);
  first_set #(.W(10)) i_zero (.map_i(zeros), .found_o(zero_found), .position_o(zero));
  assign walk_end = zero_found ? lane.base + {20'd0, zero} : lane.base + 24'd10;
  assign block_end = lane.base + 24'd10;
  assign next_end = lane.base + 24'd20;
  serial_after i_trim (.a_i(block_end), .b_i(ctx.una), .after_o(base_ends_una));
  serial_after i_trim_next (.a_i(next_end), .b_i(ctx.una), .after_o(next_ends_una));

  // The zeros of a block that are to be retransmitted: of those from `at_q` on, and before `to_q`. Blocks that end at or
  // before UNACK have been released, and no bitmap is scanned that begins behind `to_q`.
  assign at_distance = at_q - start_q;
  assign to_distance = to_q - start_q;
  assign at_after_start = !at_distance[23];
  assign to_after_block = to_distance > 24'd10;
  assign scan_low = at_after_start ? ~(10'h3ff << at_distance[3:0]) : 10'd0;
  assign scan_high = to_after_block ? 10'h3ff : ~(10'h3ff << to_distance[3:0]);
  assign scan_map = ~word & ~scan_low & scan_high;
  assign tail_end = start_q + 24'd10;
  serial_after i_rest (.a_i(to_q), .b_i(tail_end), .after_o(to_after_tail));
  assign from_tail = event_q.psn - start_q;

  logic closes, is_last;
  assign is_last = lane.head == lane.tail;
  assign closes = walk_end == lane.high + 24'd1;

  always_comb begin
    state_d = state_q;
    replays = 1'b0;
    sr_new = ctx;
    lane_new = lane;
    write_unit = 1'b0;
    take_unit = 1'b0;
    release_unit = 1'b0;
    read_at = lane.head;
    set = 1'b0;
    take = 1'b0;
    link = 1'b0;
    bits = new_bit;
    release_block = 1'b0;
    write_o = 1'b0;
    write_timer_o = 1'b0;
    timer_o = {1'b1, 1'b0, now_i + rto_i};
    ack_valid_o = 1'b0;
    ack_o = {event_q.qp, fasr_pkg::SAY_AACK, rx_placed, ctx.rcv_nxt, event_q.cumulative, lane.lost};
    retx_valid_o = 1'b0;
    retx_o = {event_q.qp, tx_from, 1'b0, 10'(tx_to - tx_from)};
    needed_d = needed_q;
    bit_d = bit_q;
    at_d = at_q;
    to_d = to_q;
    start_d = start_q;
    current_d = current_q;
    new_unit = '0;

    case (state_q)
      RUN: begin
        // The address does not depend on the decision.
        read_at = lane.tail;
      if (valid_q) begin
        if (is_data || is_tx) begin
          sr_new = is_data ? sr_rx : sr_tx;
          lane_new = is_data ? lane_rx : lane_tx;
          write_o = 1'b1;
          // A bit in the tail, or a new block.
          if (records) begin
            if (needed == '0) begin
              set = 1'b1;
            end else begin
              take = 1'b1;
              link = lane.slow;
              bits = first_bits | ((needed == 7'd1) ? new_bit : 10'd0);
              lane_new.tail = offer;
              if (!lane.slow) lane_new.head = offer;
            end
          end
          needed_d = needed - 7'd1;
          bit_d = new_bit;
          case (is_data ? rx_then : tx_then)
            fasr_pkg::THEN_APPEND:  state_d = APPEND;
            fasr_pkg::THEN_WALK:    state_d = WALK;
            fasr_pkg::THEN_RELEASE: state_d = RELEASE;
            fasr_pkg::THEN_TRIM:    state_d = TRIM;
            fasr_pkg::THEN_SEEK:    state_d = SEEK;
            fasr_pkg::THEN_SCAN:    state_d = SCAN;
            default:                state_d = RUN;
          endcase
          if (is_data) begin
            at_d = walk_from;
            ack_valid_o = (rx_then != fasr_pkg::THEN_WALK) && (rx_say != fasr_pkg::SAY_NONE);
            ack_o = {event_q.qp, rx_say, rx_placed, sr_rx.rcv_nxt, event_q.cumulative, rx_lost};
          end else begin
            current_d = lane.head;
            start_d = lane.base;
            at_d = tx_from + 24'd1;
            to_d = tx_to;
            retx_valid_o = tx_retransmits;
            if (tx_then == fasr_pkg::THEN_SCAN) retx_o.arg = 10'd1;
            if (tx_advanced || (event_q.kind == fasr_pkg::EV_TIMEOUT)) begin
              write_timer_o = 1'b1;
              if (tx_empty) timer_o.on = 1'b0;
            end
          end
          // The unit: taken with the first bitmap, released with the last.
          write_unit = lane_new.open || ctx.held;
          if (lane_new.open && !ctx.held) begin
            take_unit = 1'b1;
            sr_new.held = 1'b1;
            sr_new.unit = unit_offer;
          end
          if (ctx.held && !lane_new.open && !other.open && (state_d == RUN)) begin
            release_unit = 1'b1;
            sr_new.held = 1'b0;
          end
        end else begin
          if ((event_q.kind == fasr_pkg::EV_EXTEND) && is_due && !timer.extended) begin
            write_timer_o = 1'b1;
            timer_o = {1'b1, 1'b1, now_i + rto_extension_i};
          end
          if ((event_q.kind == fasr_pkg::EV_ARM) && !timer.on && (ctx.una != next)) write_timer_o = 1'b1;
          if ((event_q.kind == fasr_pkg::EV_RELEASE) && ctx.held) state_d = DROP;
        end
      end
      end
      APPEND: begin
        take = 1'b1;
        link = 1'b1;
        bits = (needed_q == 7'd1) ? bit_q : 10'd0;
        lane_new.tail = offer;
        lane_new.last = lane.last + 24'd10;
        write_unit = 1'b1;
        needed_d = needed_q - 7'd1;
        if (needed_q == 7'd1) state_d = RUN;
      end
      WALK: begin
        write_unit = 1'b1;
        ack_o.cumulative = walk_end;
        if (!zero_found && !is_last) begin
          release_block = 1'b1;
          lane_new.head = next_block;
          lane_new.base = block_end;
          at_d = block_end;
        end else begin
          ack_valid_o = 1'b1;
          write_o = 1'b1;
          sr_new.rcv_nxt = walk_end;
          lane_new.run = '0;
          state_d = RUN;
          if (closes) begin
            release_block = 1'b1;
            lane_new = '0;
            ack_o.lost = '0;
            if (!other.open) begin
              release_unit = 1'b1;
              sr_new.held = 1'b0;
            end
          end else if (lane.lost == fasr_pkg::LOST_ONE) begin
            // One packet is missing: back to the fast path (R-4).
            lane_new.run = 10'(lane.high - walk_end);
            lane_new.slow = 1'b0;
            state_d = RELEASE;
          end
        end
      end
      RELEASE: begin
        release_block = 1'b1;
        write_unit = 1'b1;
        lane_new.head = next_block;
        if (is_last) state_d = RUN;
      end
      TRIM: begin
        release_block = 1'b1;
        write_unit = 1'b1;
        lane_new.head = next_block;
        lane_new.base = block_end;
        if (is_last) begin
          lane_new.slow = 1'b0;
          if (!lane.open) begin
            lane_new = '0;
            if (!other.open) begin
              release_unit = 1'b1;
              sr_new.held = 1'b0;
            end
          end
        end
        // The event is then processed again, and writes the context.
        if (is_last || (lane.open && next_ends_una)) begin
          state_d = RUN;
          replays = 1'b1;
        end
      end
      SEEK: begin
        read_at = current_q;
        if (from_tail < 24'd10) begin
          set = 1'b1;
          bits = 10'(16'd1 << from_tail[3:0]);
          state_d = RUN;
        end
        current_d = next_block;
        start_d = start_q + 24'd10;
      end
      SCAN: begin
        read_at = current_q;
        retx_valid_o = scan_map != '0;
        retx_o = {event_q.qp, start_q, 1'b1, scan_map};
        current_d = next_block;
        if (!to_after_block) state_d = RUN;
        else if (current_q == lane.tail) state_d = SCAN_END;
        else start_d = start_q + 24'd10;
      end
      SCAN_END: begin
        retx_valid_o = to_after_tail;
        retx_o = {event_q.qp, tail_end, 1'b0, 10'(to_q - tail_end)};
        state_d = RUN;
      end
      default: begin
        // DROP: the lists of the receiver's and then of the sender's bitmap.
        write_unit = 1'b1;
        if (unit_now.rx.slow) begin
          read_at = unit_now.rx.head;
          release_block = 1'b1;
        end else if (unit_now.tx.slow) begin
          read_at = unit_now.tx.head;
          release_block = 1'b1;
        end else begin
          release_unit = 1'b1;
          write_o = 1'b1;
          sr_new.held = 1'b0;
          state_d = RUN;
        end
      end
    endcase

    if (is_data) begin
      new_unit.rx = lane_new;
      new_unit.tx = other;
    end else begin
      new_unit.rx = other;
      new_unit.tx = lane_new;
    end
    if (state_q == DROP) begin
      new_unit = unit_now;
      if (unit_now.rx.slow) begin
        new_unit.rx.head = next_block;
        new_unit.rx.slow = unit_now.rx.head != unit_now.rx.tail;
      end else begin
        new_unit.tx.head = next_block;
        new_unit.tx.slow = unit_now.tx.head != unit_now.tx.tail;
      end
    end

    busy_d = (state_d != RUN) || replays;
    done_o = valid_q && go_i && !busy_d;
    if (!go_i || !valid_q) begin
      state_d = state_q;
      write_unit = 1'b0;
      take_unit = 1'b0;
      release_unit = 1'b0;
      set = 1'b0;
      take = 1'b0;
      release_block = 1'b0;
      write_o = 1'b0;
      write_timer_o = 1'b0;
      ack_valid_o = 1'b0;
      retx_valid_o = 1'b0;
    end
  end

  assign ev_ready_o = !valid_q || done_o;
  assign sr_o = sr_new;
  assign write_qp_o = event_q.qp;
  assign done_event_o = event_q;
  assign done_next_o = next;
  assign done_timer_o = timer;
  assign cycles_o = cycles_q;
  assign lane_o = lane_new;

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      state_q <= RUN;
      valid_q <= 1'b0;
    end else begin
      state_q <= state_d;
      if (ev_ready_o) valid_q <= ev_valid_i;
    end
    first_q <= ev_ready_o;
    if (ev_ready_o) begin
      event_q <= ev_i;
      cycles_q <= 7'd1;
      // The memory is read while this module writes it.
      forward_q <= write_o && (write_qp_o == ev_i.qp);
      forwarded_q <= sr_o;
      forward_timer_q <= write_timer_o && (write_qp_o == ev_i.qp);
      forwarded_timer_q <= timer_o;
    end else begin
      if (go_i) begin
        ctx_q <= sr_new;
        cycles_q <= cycles_q + 7'd1;
        needed_q <= needed_d;
        bit_q <= bit_d;
        at_q <= at_d;
        to_q <= to_d;
        start_q <= start_d;
        current_q <= current_d;
      end else begin
        ctx_q <= ctx;
      end
      next_q <= next;
      timer_q <= timer;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (rst_n && valid_q && go_i) begin
      // A list that ends is known to contain what is searched.
      if (state_q == WALK) assert (lane.open && lane.slow);
      if ((state_q == WALK) && (closes || !zero_found)) assert (is_last == closes);
      if ((state_q == TRIM) && lane.open) assert (!base_ends_una);
      if (state_q == SCAN) assert (!to_distance[23] && (!at_after_start || (at_distance <= 24'd10)));
    end
  end
`endif
endmodule

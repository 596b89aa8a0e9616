// A set of flows, the two stages that its flows pass (address to memory, process), and a bit for each flow.
//
// Source: Tonic, section 3.1; the model is `Turns` of crates/rnic-tonic/src/sets.rs. A flow's bit is set from its
// insertion until its turn decides against reinsertion, so that a flow is inserted once. A flow that is alone in the
// set gets an extra turn in the cycle between its turns, so that it is served in each cycle.
//
// Ports, all of one cycle:
//   settle_i, wanted_i   the flow being processed, `flow_i[0]`, ends its turn, and is reinserted if it is wanted
//   activate_i           these flows are inserted unless their bit is set; at most one request names a flow
//   advance_i            the stages move; otherwise they keep their flows
//   free_i               the slot of the first stage is free: the next flow is taken from the set
//   has_turn_o           bits of the flows `flow_i`
module flow_turns #(
    parameter int unsigned FLOWS = 1024
) (
    input  logic                       clk,
    input  logic                       rst_n,
    input  logic                       settle_i,
    input  logic                       wanted_i,
    input  logic [3:0]                 activate_i,
    input  logic [4*$clog2(FLOWS)-1:0] flow_i,
    input  logic                       advance_i,
    input  logic                       free_i,
    output logic [3:0]                 has_turn_o,
    output logic [$clog2(FLOWS)-1:0]   fetch_flow_o,
    output logic                       valid_o,
    output logic                       is_extra_o,
    output logic [$clog2(FLOWS)-1:0]   flow_o
);
  localparam int unsigned F = $clog2(FLOWS);

  logic [FLOWS-1:0] has_turn_q;
  logic [3:0]       push;
  logic             fetch_valid_q, fetch_extra_q, valid_q, extra_q;
  logic [F-1:0]     fetch_flow_q, flow_q, next_flow;
  logic             found;

  // Insertions and ends of the cycle before. They come late in a cycle, so they are decoded in the next one, and a
  // request is compared with them.
  logic [3:0]     waits_q;
  logic [4*F-1:0] waiting_q;
  logic           ended_q;

  always_comb begin
    for (int unsigned p = 0; p < 4; p++) begin
      has_turn_o[p] = has_turn_q[flow_i[p*F+:F]] && !(ended_q && waiting_q[0+:F] == flow_i[p*F+:F]);
      for (int unsigned w = 0; w < 4; w++) begin
        if (waits_q[w] && waiting_q[w*F+:F] == flow_i[p*F+:F]) has_turn_o[p] = 1'b1;
      end
    end
  end

  always_comb begin
    push = activate_i & ~has_turn_o;
    if (settle_i) push[0] = wanted_i;
  end

  logic [4*FLOWS-1:0] inserted;
  logic [FLOWS-1:0]   ended;
  generate
    for (genvar p = 0; p < 4; p++) begin : g_inserted
      one_hot #(.W(FLOWS)) i_inserted (
          .enable_i(waits_q[p]), .position_i(waiting_q[p*F+:F]), .map_o(inserted[p*FLOWS+:FLOWS])
      );
    end
  endgenerate
  one_hot #(.W(FLOWS)) i_ended (.enable_i(ended_q), .position_i(waiting_q[0+:F]), .map_o(ended));
  always_ff @(posedge clk) begin
    if (!rst_n) begin
      has_turn_q <= '0;
      waits_q <= '0;
      ended_q <= 1'b0;
    end else begin
      has_turn_q <= (has_turn_q & ~ended) | inserted[0+:FLOWS] | inserted[FLOWS+:FLOWS] | inserted[2*FLOWS+:FLOWS]
          | inserted[3*FLOWS+:FLOWS];
      waits_q <= push;
      ended_q <= settle_i && !wanted_i;
    end
    waiting_q <= flow_i;
  end

  flow_set #(.FLOWS(FLOWS)) i_set (
      .clk(clk),
      .rst_n(rst_n),
      .push_i(push),
      .flow_i(flow_i),
      .pop_i(advance_i && free_i),
      .found_o(found),
      .flow_o(next_flow)
  );

  always_ff @(posedge clk) begin
    if (!rst_n) begin
      fetch_valid_q <= 1'b0;
      valid_q <= 1'b0;
    end else begin
      if (advance_i) begin
        valid_q <= fetch_valid_q;
        fetch_valid_q <= free_i && (found || (fetch_valid_q && !fetch_extra_q));
      end
    end
    if (advance_i) begin
      extra_q <= fetch_extra_q;
      flow_q <= fetch_flow_q;
      fetch_extra_q <= !found;
      fetch_flow_q <= found ? next_flow : fetch_flow_q;
    end
  end

  assign fetch_flow_o = advance_i ? fetch_flow_q : flow_q;
  assign valid_o = valid_q;
  assign is_extra_o = extra_q;
  assign flow_o = flow_q;
endmodule

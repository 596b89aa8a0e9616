// Properties of `flow_set`: for any insertions and removals, flows leave in the order in which they were inserted,
// those of a cycle in the order of the ports; none is lost and none leaves twice. By induction, for 8 flows.
//
// One flow is watched, any one: with its insertion the number of flows before it is known, and it leaves when that many
// have left, not before and not otherwise. The registers of the set and its banks are connected to `head` to `cells`:
// the watched flow is in one place if it is in the set, and in none if it is not.
module flow_set_proof #(
    localparam int unsigned FLOWS = 8,  // the fewest
    localparam int unsigned F = 3
) (
    input logic           clk,
    input logic [3:0]     push_i,
    input logic [4*F-1:0] flow_i,
    input logic           pop_i
);
  logic booted, found;
  initial booted = 1'b0;
  logic [F-1:0] flow;
  flow_set #(.FLOWS(FLOWS)) i_set (
      .clk(clk), .rst_n(booted), .push_i(push_i), .flow_i(flow_i), .pop_i(pop_i), .found_o(found), .flow_o(flow)
  );

  // Inside of the set. The place of cell c is c.
  logic [F-1:0]       head, tail;
  logic [F:0]         count;
  logic [3:0]         waits;
  logic [4*F-1:0]     waiting;
  logic [FLOWS*F-1:0] cells;

  logic [F-1:0] watched;
  logic         is_in, is_in_d, is_twice;
  logic [F:0]   length, all, ahead, ahead_d;
  always_comb begin
    is_in_d = is_in;
    ahead_d = ahead;
    all = length;
    is_twice = 1'b0;
    for (int unsigned p = 0; p < 4; p++) begin
      if (push_i[p]) begin
        if (flow_i[p*F+:F] == watched) begin
          is_twice = is_twice || is_in_d;
          is_in_d = 1'b1;
          ahead_d = all;
        end
        all = all + 1'b1;
      end
    end
    // A flow is inserted only while it is not in the set; so there are at most as many as there are flows.
    assume (!is_twice);
    assume (all <= (F + 1)'(FLOWS));
  end
  always_ff @(posedge clk) begin
    booted <= 1'b1;
    watched <= watched;
    is_in <= booted && is_in_d && !(pop_i && ahead_d == '0);
    ahead <= ahead_d - (F + 1)'(pop_i);
    length <= booted ? (all - (F + 1)'(pop_i && all != '0)) : '0;
  end

  logic [F:0]   places, position;
  logic [F-1:0] distance;
  logic         is_wrong;
  always_comb begin
    places = '0;
    is_wrong = 1'b0;
    distance = '0;
    for (int unsigned c = 0; c < FLOWS; c++) begin
      distance = F'(c) - head;
      if ({1'b0, distance} < count && cells[c*F+:F] == watched) begin
        places = places + 1'b1;
        is_wrong = is_wrong || {1'b0, distance} != ahead;
      end
    end
    position = count;
    for (int unsigned p = 0; p < 4; p++) begin
      if (waits[p]) begin
        if (waiting[p*F+:F] == watched) begin
          places = places + 1'b1;
          is_wrong = is_wrong || position != ahead;
        end
        position = position + 1'b1;
      end
    end
    if (booted) begin
      assert (found == (all != '0));
      // The watched flow is the next one exactly when no other is before it.
      if (found) assert ((flow == watched) == (is_in_d && ahead_d == '0));
      assert (position == length);
      assert (count <= length);
      assert (tail == head + count[F-1:0]);
      assert (places == (F + 1)'(is_in));
      assert (!is_wrong);
    end
  end
endmodule
